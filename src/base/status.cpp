#include "base/status.hpp"

namespace larklane {

const char* errc_name(Errc code) noexcept {
  switch (code) {
    case Errc::kOk:
      return "ok";
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kNotActive:
      return "not active";
    case Errc::kAlreadyActive:
      return "already active";
    case Errc::kAlreadyReady:
      return "already ready";
    case Errc::kWrongKind:
      return "wrong kind";
    case Errc::kUnsupportedBuffer:
      return "unsupported buffer";
    case Errc::kSizeMismatch:
      return "size mismatch";
    case Errc::kTransfer:
      return "transfer failed";
    case Errc::kVersion:
      return "other version";
    case Errc::kPeerFreed:
      return "peer freed";
    case Errc::kPeerDown:
      return "peer down";
    case Errc::kUnreachable:
      return "unreachable";
    case Errc::kForeignUser:
      return "foreign user";
    case Errc::kProtocol:
      return "protocol violated";
    case Errc::kNoMemory:
      return "no memory";
    case Errc::kNoThread:
      return "no thread";
    case Errc::kSystem:
      return "system call failed";
    case Errc::kBadOption:
      return "bad option";
  }
  return "unknown error";
}

}  // namespace larklane
