"""Where which tissue lies: bowel, breast, lymph node, and the lesions in them."""
