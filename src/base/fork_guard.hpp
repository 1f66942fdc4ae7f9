#pragma once
// Sockets that forked children don't get. On one host a pidfd tells that a process has ended
// though its child holds copies of its sockets. Across hosts there is only the hang-up, which must
// not wait for the child. Thread safety: thread-safe.

#include "base/unique_fd.hpp"

namespace larklane {

/// @param make  makes a socket, at most one, and does not wait: no fork comes in between
/// @return  the socket; children have a descriptor without meaning under its number
UniqueFd keep_from_children(int (*make)(void* argument), void* argument);
template <class Make>
UniqueFd keep_from_children(Make make) {
  return keep_from_children([](void* made_by) { return (*static_cast<Make*>(made_by))(); }, &make);
}

}  // namespace larklane
