"""Other people's files: trees and zips, images, tensors, csv."""
