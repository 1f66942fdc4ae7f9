// Stands in for CUDA's driver library, of which only the name counts here.
int larklane_test_driver;
