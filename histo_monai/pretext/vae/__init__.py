"""The variational autoencoder: the method, its decoder, the terms of its loss and its picture."""
