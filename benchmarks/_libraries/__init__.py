"""Networks as timm, torchvision and transformers make them."""
