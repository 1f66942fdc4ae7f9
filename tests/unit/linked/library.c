/* A library of tests/unit/tools_linked_libraries_test.cpp: LINKED_CALL() calls the next one. */
#ifdef LINKED_NEXT
int LINKED_NEXT(void);
int LINKED_CALL(void);
int LINKED_CALL(void) { return LINKED_NEXT() + 1; }
#else
int LINKED_CALL(void);
int LINKED_CALL(void) { return 0; }
#endif
