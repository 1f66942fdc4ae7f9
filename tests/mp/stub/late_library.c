// A library with thread-local memory that it reaches without a call: it can be opened late only
// while the C library has room for that memory in all threads' blocks.

static __thread __attribute__((tls_model("initial-exec"))) char block[512];

char* thread_block(void) { return block; }
