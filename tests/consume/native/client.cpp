// A foreign program, in C++: an active message to itself.
#include <larklane/message.hpp>
#include <string>

int main() {
  std::string problem;
  auto context = larklane::Context::create(&problem);
  if (!context) return 1;
  auto vci = (*context)->create_vci();
  auto mail = larklane::CompletionQueue::create((*context)->completions());
  if (!vci || !mail) return 2;
  auto there = mail->register_remote();
  if (!there) return 3;
  for (;;) {
    auto post = larklane::post_am(*vci, 0, *there, 7, "hello", 6);
    if (!post) return 4;
    if (*post != larklane::Post::retry) break;
    vci->progress();
  }
  for (;;) {
    vci->progress();
    if (const auto told = mail->pop()) {
      const bool is_right =
          told->tag == 7 && static_cast<char*>(told->buffer) == std::string("hello");
      larklane::free_buffer(told->buffer);
      return is_right ? 0 : 5;
    }
  }
}
