// Opens the libraries of its arguments, one after the other.

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (!dlopen(argv[i], RTLD_NOW | RTLD_LOCAL)) {
      puts(dlerror());
      return 1;
    }
  }
  puts("ok");
  return 0;
}
