"""The steps of `deploy/images/build`: kernel, base image, initramfs, and the shelf they are put on."""
