"""What users have registered, where every stage of the compiler can look it up."""
