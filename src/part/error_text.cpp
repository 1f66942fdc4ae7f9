#include "part/error_text.hpp"

namespace larklane::part {

std::string describe(const InitArgs& args, Kind kind) {
  return std::string(kind == Kind::send ? "partitioned send" : "partitioned receive") + " (tag " +
         std::to_string(args.tag) + ", source rank " + std::to_string(args.source) + ", " +
         std::to_string(args.partitions) + " partitions, " +
         std::to_string(static_cast<std::uint64_t>(args.partitions) * args.count *
                        args.type->size_bytes()) +
         " bytes)";
}

Status status_of(const record::Fail& fail) {
  const bool is_known = fail.code > 0 && fail.code <= static_cast<std::int32_t>(Errc::kBadOption);
  return is_known ? Status(static_cast<Errc>(fail.code), fail.detail) : Status(Errc::kProtocol);
}

std::string reported(const InitArgs& args, Kind kind, const record::Fail& fail,
                     const std::string& cause) {
  const Errc code = status_of(fail).code();
  if (code == Errc::kSizeMismatch)
    return "the " + describe(args, kind) + " was matched by a receive of " +
           std::to_string(fail.bytes) + " bytes at " + args.peer;
  return "the " + describe(args, kind) + ": " + args.peer + " reports " +
         (cause.empty()
              ? std::string(errc_name(code)) + " (errno " + std::to_string(fail.detail) + ")"
              : cause);
}

}  // namespace larklane::part
