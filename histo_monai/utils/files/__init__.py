"""Read files of other programs: trees and zips, images, tensors, csv."""
