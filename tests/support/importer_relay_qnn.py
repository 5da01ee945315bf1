QNN: dict = {}
