"""Data in folders, in the layouts that people have on disk: LEAF, images, audio, CIFAR-100."""
