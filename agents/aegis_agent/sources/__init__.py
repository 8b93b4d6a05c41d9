"""Where samples come from: amdsmi in disposable processes, netlink, sysfs, the host itself."""
