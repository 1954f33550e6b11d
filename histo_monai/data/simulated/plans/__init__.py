"""Plans of tissue: bowel, breast, lymph node, and their lesions."""
