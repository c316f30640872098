// The ranks of the tests with real processes: `rank_program MODE [RANK]`.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/run.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/job_state.h"
#include "tessera/testing/collective_script.h"

namespace tessera {
namespace {

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// As much as kernels may put there.
void use_stack() {
  volatile char block[512 << 10];
  for (size_t at = 0; at < sizeof(block); at += 1024) block[at] = 1;
}

// Who comes late comes after everybody's deadline, also on a machine that keeps processes waiting.
constexpr std::chrono::seconds kLate{120};

int run_rank(cluster::Context& context, const cluster::Arguments& arguments) {
  const std::string mode = arguments.empty() ? "script" : arguments[0];
  const bool is_chosen = arguments.size() > 1 && context.rank() == parse_int(arguments[1], "RANK");
  if (mode == "script") {
    const uint64_t hash = run_collective_script(context);
    say(fmt::format("checksum {:016x} rank {} of {} local {} of {} over {}", hash, context.rank(), context.size(),
                    context.local_rank(), context.local_size(), context.transport()));
    return 0;
  }
  if (mode == "code") return is_chosen ? 7 : 0;
  if (mode == "usage") return cluster::kExitUsage;
  if (mode == "return") {
    if (is_chosen) return 3;
    context.world().barrier("without one");
    return 0;
  }
  if (mode == "die") {
    context.world().barrier("start");
    if (is_chosen) raise(SIGKILL);
    context.world().barrier("after the death");
    return 0;
  }
  if (mode == "end without a word") {
    context.world().barrier("start");
    if (is_chosen) _exit(0);
    context.world().barrier("after the end");
    return 0;
  }
  if (mode == "throw") {
    context.world().barrier("start");
    if (is_chosen) throw InvalidArgument("the shape is wrong");
    context.world().barrier("after the error");
    return 0;
  }
  // Rank 0 hears by its own means that the chosen one has failed, and is first to say so.
  if (mode == "hear") {
    context.world().barrier("start");
    if (context.rank() == 0)
      throw comm::PeerFailure(static_cast<int>(parse_int(arguments.at(1), "RANK")), "its disk is full");
    try {
      context.world().barrier("after the error");
    } catch (const comm::PeerFailure&) {
      if (!is_chosen) throw;
    }
    throw IoError("the disk is full");
  }
  if (mode == "leave") {
    if (!is_chosen) context.world().barrier("without one");
    return 0;
  }
  if (mode == "late") {
    context.world().barrier("start");
    if (is_chosen) std::this_thread::sleep_for(kLate);
    context.world().barrier("too late");
    return 0;
  }
  if (mode == "late amid others") {
    comm::Communicator* two = context.create_group("two", {1, 2});
    if (context.rank() == 1) two->barrier("of two");
    if (context.rank() == 2) std::this_thread::sleep_for(kLate);
    context.world().barrier("of all");
    return 0;
  }
  if (mode == "late group") {
    context.world().barrier("start");
    if (is_chosen) std::this_thread::sleep_for(kLate);
    context.create_group("pair", {0, 1});
    return 0;
  }
  if (mode == "calls instead of a group") {
    context.world().set_driver(comm::Communicator::Driver::kMain);
    context.world().barrier("start");
    if (is_chosen) context.world().barrier("of another program");
    context.create_group("pair", {0, 1});
    return 0;
  }
  if (mode == "left out of a group") {
    if (!is_chosen) context.create_group("pair", {0, 1});
    return 0;
  }
  if (mode == "busy") {
    for (volatile bool goes_on = is_chosen; goes_on;) {
    }
    context.world().barrier("too late");
    return 0;
  }
  if (mode == "late letter") {
    float x = 0;
    if (context.rank() == 0) context.world().receive(&x, 1, DType::kF32, 1, "letter");
    if (context.rank() == 1) std::this_thread::sleep_for(kLate);
    context.world().barrier("afterwards");
    return 0;
  }
  if (mode == "mismatch") {
    float x = 0;
    if (is_chosen) {
      context.world().broadcast(&x, 1, DType::kF32, 0, "weights");
    } else {
      context.world().all_reduce(&x, 1, DType::kF32, comm::ReduceOp::kSum, "loss");
    }
    return 0;
  }
  if (mode == "reserve") {
    constexpr int kTimes = 100;
    constexpr int kEach = 1000;  // so that no rank waits long for another
    for (int time = 0; time < kTimes; ++time) {
      for (int i = 0; i < kEach; ++i) context.reserve_shared_memory(1);
      context.world().barrier("after so many");
    }
    return 0;
  }
  if (mode == "stack") {
    use_stack();
    std::thread(use_stack).join();
    say("has room");
    return 0;
  }
  if (mode == "wait") {
    context.world().barrier("start");
    say(fmt::format("pid {}", getpid()));
    while (true) pause();
  }
  throw InvalidArgument("unknown mode \"{}\"", mode);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::cluster::run(argc, argv, tessera::run_rank); }
