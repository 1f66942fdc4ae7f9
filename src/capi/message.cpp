// Posts.

#include "larklane/message.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "capi/error.hpp"
#include "capi/handles.hpp"
#include "capi/names.hpp"
#include "msg/protocol/message_lane.hpp"

static_assert(LARKLANE_DONE == static_cast<int>(Post::done) &&
              LARKLANE_POSTED == static_cast<int>(Post::posted) &&
              LARKLANE_RETRY == static_cast<int>(Post::retry));
static_assert(LARKLANE_MATCH_RANK_TAG == static_cast<int>(Match::rank_tag) &&
              LARKLANE_MATCH_RANK == static_cast<int>(Match::rank) &&
              LARKLANE_MATCH_TAG == static_cast<int>(Match::tag) &&
              LARKLANE_MATCH_NONE == static_cast<int>(Match::none));

namespace {

PostOptions options_of(const larklane_post_options* options) noexcept {
  if (options == nullptr) return {};
  return {.completion = options->completion == nullptr ? nullptr : &options->completion->base(),
          .user_context = options->user_context,
          .region = options->region == nullptr ? nullptr : &options->region->region,
          .signals_always = options->signals_always != 0,
          .queues = options->queues != 0,
          .more_follow = options->more_follow != 0};
}

/// How messages are matched. Out of range: a value that the C++ call refuses.
struct Matching {
  explicit Matching(const larklane_post_options* options) noexcept {
    if (options == nullptr) return;
    const bool is_match = options->match >= 0 && options->match <= LARKLANE_MATCH_NONE;
    const bool is_space = options->space >= 0 && options->space <= UINT8_MAX;
    match = is_match ? static_cast<Match>(options->match) : static_cast<Match>(UINT8_MAX);
    space = {is_space ? static_cast<std::uint8_t>(options->space) : std::uint8_t{UINT8_MAX},
             options->is_ordered != 0};
  }
  Match match{};
  MatchSpace space{};
};

RemoteRegion region_of(const larklane_remote_region& region) noexcept {
  return {region.bytes, region.address, region.key, region.rank, region.number};
}

/// Of larklane_buffer. Too many: a count that the C++ call refuses.
class Buffers {
 public:
  Buffers(const larklane_buffer* buffers, std::size_t count) noexcept
      : count_(std::min(count, all_.size())) {
    for (std::size_t i = 0; i < count_; ++i) all_[i] = {buffers[i].start, buffers[i].bytes};
  }
  std::span<const larklane::Buffer> span() const noexcept { return std::span(all_).first(count_); }

 private:
  std::array<larklane::Buffer, larklane::kBuffersMax + 1> all_;
  const std::size_t count_;
};
static_assert(LARKLANE_BUFFERS_MAX == larklane::kBuffersMax);

/// The result of a C++ packet's `post`; C's packet is emptied with it. Not that of C++: its handle
/// ends here.
template <class Call>
Result<Post> post_packet(larklane_vci& vci, larklane_packet& packet, Call&& post) noexcept {
  if (packet.lane != &vci.vci.inside()) return Errc::kInvalidArgument;
  larklane::Packet held(vci.vci.inside(), packet.number, packet.buffer);
  Result<Post> answer = post(held);
  if (!held) packet = LARKLANE_PACKET_INIT;
  held.forget();
  return answer;
}

int answer(const char* call, Result<Post> post, larklane_post* post_p) noexcept {
  if (!post) [[unlikely]]
    return fail(call, post.error());
  *post_p = static_cast<larklane_post>(*post);
  return 0;
}

}  // namespace

/// Arguments that all posts need.
#define LARKLANE_CAPI_POST_NEEDS(vci, options, post_p)           \
  LARKLANE_CAPI_NEEDS_LANE(vci);                                 \
  if ((options) != nullptr) LARKLANE_CAPI_NEEDS_STRUCT(options); \
  LARKLANE_CAPI_NEEDS(post_p)

int larklane_post_send(larklane_vci* vci, int rank, uint32_t tag, const void* buffer,
                       uint64_t bytes, const larklane_post_options* options,
                       larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  const Matching how(options);
  return answer(__func__,
                larklane::post_send(vci->vci, rank, tag, buffer, bytes, options_of(options),
                                    how.match, how.space),
                post_p);
}

int larklane_post_recv(larklane_vci* vci, int rank, uint32_t tag, void* buffer, uint64_t bytes,
                       const larklane_post_options* options, larklane_completion* done_p,
                       larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  if (done_p != nullptr) LARKLANE_CAPI_NEEDS_STRUCT(done_p);
  const Matching how(options);
  Completion done;
  const Result<Post> post =
      larklane::post_recv(vci->vci, rank, tag, buffer, bytes, options_of(options),
                          done_p == nullptr ? nullptr : &done, how.match, how.space);
  const int status = answer(__func__, post, post_p);
  if (status == 0 && *post_p == LARKLANE_DONE && done_p != nullptr) *done_p = completion_of(done);
  return status;
}

int larklane_post_am(larklane_vci* vci, int rank, larklane_remote_completion there, uint32_t tag,
                     const void* buffer, uint64_t bytes, const larklane_post_options* options,
                     larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  return answer(__func__,
                larklane::post_am(vci->vci, rank, there, tag, buffer, bytes, options_of(options)),
                post_p);
}

int larklane_post_send_buffers(larklane_vci* vci, int rank, uint32_t tag,
                               const larklane_buffer* buffers, size_t count,
                               const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  if (count != 0) LARKLANE_CAPI_NEEDS(buffers);
  const Matching how(options);
  return answer(__func__,
                larklane::post_send(vci->vci, rank, tag, Buffers(buffers, count).span(),
                                    options_of(options), how.match, how.space),
                post_p);
}

int larklane_post_am_buffers(larklane_vci* vci, int rank, larklane_remote_completion there,
                             uint32_t tag, const larklane_buffer* buffers, size_t count,
                             const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  if (count != 0) LARKLANE_CAPI_NEEDS(buffers);
  return answer(__func__,
                larklane::post_am(vci->vci, rank, there, tag, Buffers(buffers, count).span(),
                                  options_of(options)),
                post_p);
}

int larklane_packet_take(larklane_vci* vci, larklane_packet* packet_p) {
  LARKLANE_CAPI_NEEDS_LANE(vci);
  LARKLANE_CAPI_NEEDS_STRUCT(packet_p);
  larklane::Packet taken = larklane::take_packet(vci->vci);
  *packet_p = LARKLANE_PACKET_INIT;
  if (!taken) return 0;
  *packet_p = {sizeof *packet_p, taken.start(), vci->vci.packet_bytes_max(), taken.lane(),
               taken.number()};
  taken.forget();
  return 0;
}

int larklane_packet_give_back(larklane_packet* packet) {
  LARKLANE_CAPI_NEEDS_STRUCT(packet);
  if (packet->buffer == nullptr) return 0;
  auto& lane = *static_cast<larklane::msg::MessageLane*>(packet->lane);
  if (lane.packets().pool().held(packet->number) == nullptr)
    return fail(__func__, Errc::kInvalidArgument, "it was posted or given back");
  const larklane::Packet held(lane, packet->number, packet->buffer);
  *packet = LARKLANE_PACKET_INIT;
  return 0;
}

int larklane_post_send_packet(larklane_vci* vci, int rank, uint32_t tag, larklane_packet* packet,
                              uint64_t bytes, const larklane_post_options* options,
                              larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(packet);
  const Matching how(options);
  return answer(__func__,
                post_packet(*vci, *packet,
                            [&](larklane::Packet& held) {
                              return larklane::post_send(vci->vci, rank, tag, held, bytes,
                                                         options_of(options), how.match, how.space);
                            }),
                post_p);
}

int larklane_post_am_packet(larklane_vci* vci, int rank, larklane_remote_completion there,
                            uint32_t tag, larklane_packet* packet, uint64_t bytes,
                            const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(packet);
  return answer(__func__,
                post_packet(*vci, *packet,
                            [&](larklane::Packet& held) {
                              return larklane::post_am(vci->vci, rank, there, tag, held, bytes,
                                                       options_of(options));
                            }),
                post_p);
}

void larklane_free_buffer(void* buffer) { larklane::free_buffer(buffer); }

int larklane_post_put(larklane_vci* vci, const larklane_remote_region* region, uint64_t offset,
                      const void* buffer, uint64_t bytes, larklane_remote_completion there,
                      uint32_t tag, const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(region);
  return answer(__func__,
                larklane::post_put(vci->vci, region_of(*region), offset, buffer, bytes,
                                   options_of(options), there, tag),
                post_p);
}

int larklane_post_get(larklane_vci* vci, const larklane_remote_region* region, uint64_t offset,
                      void* buffer, uint64_t bytes, larklane_remote_completion there, uint32_t tag,
                      const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(region);
  return answer(__func__,
                larklane::post_get(vci->vci, region_of(*region), offset, buffer, bytes,
                                   options_of(options), there, tag),
                post_p);
}

int larklane_post_fetch_add(larklane_vci* vci, const larklane_remote_region* region,
                            uint64_t offset, uint64_t value, const larklane_post_options* options,
                            uint64_t* before_p, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(region);
  return answer(__func__,
                larklane::post_fetch_add(vci->vci, region_of(*region), offset, value, before_p,
                                         options_of(options)),
                post_p);
}

int larklane_post_compare_swap(larklane_vci* vci, const larklane_remote_region* region,
                               uint64_t offset, uint64_t expected, uint64_t value,
                               const larklane_post_options* options, uint64_t* before_p,
                               larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(region);
  return answer(__func__,
                larklane::post_compare_swap(vci->vci, region_of(*region), offset, expected, value,
                                            before_p, options_of(options)),
                post_p);
}

static_assert(LARKLANE_ACCUMULATE_MAX == larklane::kAccumulateMax &&
              LARKLANE_BUFFERS_MAX == larklane::kBuffersMax);

int larklane_post_accumulate(larklane_vci* vci, const larklane_remote_region* region,
                             uint64_t offset, const double* values, uint32_t count,
                             const larklane_post_options* options, larklane_post* post_p) {
  LARKLANE_CAPI_POST_NEEDS(vci, options, post_p);
  LARKLANE_CAPI_NEEDS_STRUCT(region);
  return answer(__func__,
                larklane::post_accumulate(vci->vci, region_of(*region), offset, values, count,
                                          options_of(options)),
                post_p);
}
