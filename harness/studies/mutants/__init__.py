"""Wrong kernels and wrong oracles, one line each, and which case of the suites catches them."""
