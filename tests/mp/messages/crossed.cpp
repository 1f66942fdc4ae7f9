// Figure 9 of Zambre et al., ICS'20: programs that are correct, and never end where a waiting
// thread serves its own lane only. Rank 0 waits for its posts over its first lane, then for those
// over its second. Of rank 1's threads each has a lane; the first is at a barrier, and makes no
// progress, until all of the second's is over.
//
//   crossed sends|gets|puts ROUNDS    sends: so long that each waits for its receive
//
// Exit status: of program.hpp; 1: a thread waits for a minute, or a payload is wrong.

#include <array>
#include <barrier>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kWords = 4096;
constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
using Words = std::array<std::uint64_t, kWords>;

/// Of rank `from`'s bytes that go over `lane` in `round`.
std::uint64_t number_of(int from, std::size_t lane, std::uint64_t round) {
  return round << 8 | static_cast<std::uint64_t>(from) << 4 | lane;
}

/// The operations of this rank on one of its lanes.
class Lane {
 public:
  Lane(Context& context, std::string_view what, std::size_t index)
      : what_(what),
        index_(index),
        peer_(1 - context.rank()),
        vci_(got(context.create_vci(), "create_vci")),
        over_(got(Synchronizer::create(context.completions(), 1), "synchronizer")),
        arrived_(got(Counter::create(context.completions()), "counter")),
        there_(got(arrived_.register_remote(), "register_remote")),
        mine_(got(context.register_region(exposed_.data(), kBytes), "register_region")),
        tag_(static_cast<std::uint32_t>(index)) {
    options_.completion = &over_;
    options_.signals_always = true;
    if (kBytes <= vci_.eager_bytes_max()) fail(3, "sends do not wait for their receives");
  }
  bool is_on(const Lane& other) const { return &vci_.inside() == &other.vci_.inside(); }

  void exchange_regions() {
    const RemoteRegion region = mine_.remote();
    received(&theirs_, sizeof theirs_);
    sent(&region, sizeof region);
    wait();
  }
  /// The memory that the other's gets read.
  void expose(std::uint64_t round) { fill(exposed_, number_of(1 - peer_, index_, round)); }

  void post(std::uint64_t round) {
    if (what_ == "gets") {
      words_.fill(0);
      (void)posted(vci_, "a get",
                   [&] { return post_get(vci_, theirs_, 0, words_.data(), kBytes, options_); });
    } else if (what_ == "puts") {
      fill(words_, number_of(1 - peer_, index_, round));
      (void)posted(vci_, "a put", [&] {
        return post_put(vci_, theirs_, 0, words_.data(), kBytes, options_, there_);
      });
    } else if (peer_ == 1) {
      fill(words_, number_of(0, index_, round));
      (void)posted(vci_, "a send",
                   [&] { return post_send(vci_, peer_, tag_, words_.data(), kBytes, options_); });
    } else {
      received(words_.data(), kBytes);
    }
  }
  void wait() {
    wait_for(vci_, "the end of what was posted over lane " + std::to_string(index_),
             [&] { return over_.test(); });
    if (!over_.completions()[0].status.ok()) fail(3, "a completion with an error");
    (void)over_.reset();
  }
  /// When all is over.
  void check(std::uint64_t round) {
    if (what_ == "sends" && peer_ == 1) return;
    if (what_ == "puts")
      wait_for(vci_, "the signal of a put", [&] { return arrived_.completed() > round; });
    const Words& came = what_ == "puts" ? exposed_ : words_;
    if (!is_filled(came, number_of(peer_, index_, round)))
      fail(1, "payload of lane " + std::to_string(index_) + ", round " + std::to_string(round));
  }

 private:
  void received(void* to, std::size_t bytes) {
    if (got(post_recv(vci_, peer_, tag_, to, bytes, options_), "post_recv") != Post::posted)
      fail(1, "a receive is not posted");
  }
  void sent(const void* from, std::size_t bytes) {
    (void)posted(vci_, "a send", [&] { return post_send(vci_, peer_, tag_, from, bytes); });
  }

  const std::string_view what_;
  const std::size_t index_;
  const int peer_;
  Words words_{}, exposed_{};
  Vci vci_;
  Synchronizer over_;
  Counter arrived_;
  const RemoteCompletion there_;
  Region mine_;
  RemoteRegion theirs_{};
  const std::uint32_t tag_;
  PostOptions options_;
};

void run_rank_0(std::array<Lane*, 2> lanes, std::string_view what, std::uint64_t round) {
  for (Lane* const lane : lanes) {
    lane->post(round);
    if (what == "sends") lane->wait();
  }
  if (what == "sends") return;
  for (Lane* const lane : lanes) lane->wait();
}

void run_rank_1(std::array<Lane*, 2> lanes, std::uint64_t round) {
  std::barrier barrier(2);
  std::thread first([&] {
    lanes[0]->post(round);
    barrier.arrive_and_wait();
    barrier.arrive_and_wait();
    lanes[0]->wait();
  });
  lanes[1]->post(round);
  barrier.arrive_and_wait();
  lanes[1]->wait();
  barrier.arrive_and_wait();
  first.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail(3, "crossed sends|gets|puts ROUNDS");
  const std::string_view what = argv[1];
  const std::uint64_t rounds = std::strtoull(argv[2], nullptr, 10);
  auto context = begin();
  {
    Lane first(*context, what, 0), second(*context, what, 1);
    if (first.is_on(second)) fail(3, "there is one lane");
    for (Lane* const lane : {&first, &second}) lane->exchange_regions();
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (Lane* const lane : {&first, &second}) lane->expose(what == "gets" ? round : ~round);
      meet(*context);
      if (context->rank() == 0)
        run_rank_0({&first, &second}, what, round);
      else
        run_rank_1({&first, &second}, round);
      meet(*context);
      for (Lane* const lane : {&first, &second}) lane->check(round);
    }
  }
  meet(*context);
  if (context->rank() == 0) std::printf("crossed: %s of %s rounds are over\n", argv[1], argv[2]);
  return 0;
}
