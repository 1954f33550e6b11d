"""Files of somebody else: trees and zips, images, outlines, and many of them in several processes."""
