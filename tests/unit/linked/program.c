int linked_upper(void);
int main(void) { return linked_upper() == 1 ? 0 : 1; }
