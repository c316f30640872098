// A process that saves or converts checkpoints, to be killed in mid commit: TESSERA_FAILPOINT says where, see
// failpoints.h.
//   checkpoint_job save DIRECTORY FIRST LAST KEEP     steps FIRST to LAST, each saved, only the newest KEEP kept
//   checkpoint_job slices DIRECTORY FIRST LAST KEEP   the same by four ranks, each its part
//   checkpoint_job work DIRECTORY JOB_ID FIRST LAST KEEP   as save, with the directory locked
//   checkpoint_job convert SOURCE DESTINATION SRC_STRATEGY DST_STRATEGY
//   checkpoint_job hold DIRECTORY JOB_ID              locks the directory, prints its generation, waits for a line
// Prints each step when it is committed. Exit code 1 with the error on standard error.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/directory_lock.h"
#include "tests/faults/failpoints.h"
#include "tests/faults/storage.h"

namespace tessera::checkpoint::faults {
namespace {

constexpr int kRanks = 4;

std::optional<Failpoint> failpoint_of_environment() {
  const char* text = std::getenv("TESSERA_FAILPOINT");
  return text == nullptr ? std::nullopt : std::optional(parse_failpoint(text));
}

int run(const std::vector<std::string>& arguments) {
  FailpointFileSystem files(FileSystem::local(), failpoint_of_environment());
  if (arguments.size() == 5 && (arguments[0] == "save" || arguments[0] == "slices")) {
    const auto& directory = arguments[1];
    const auto last = parse_int(arguments[3], "LAST");
    const auto keep = parse_int(arguments[4], "KEEP");
    for (int64_t step = parse_int(arguments[2], "FIRST"); step <= last; ++step) {
      if (arguments[0] == "save") {
        save_step_keeping(files, step, keep, directory);
      } else {
        save_step_in_slices(files, step, kRanks, path_of_step(step, directory), keep);
      }
      std::printf("%lld\n", static_cast<long long>(step));
      std::fflush(stdout);
    }
    return 0;
  }
  if (arguments.size() == 5 && arguments[0] == "convert") {
    checkpoint::transform_checkpoints(files, arguments[1], arguments[2], "out", arguments[3], arguments[4]);
    return 0;
  }
  if (arguments.size() == 6 && arguments[0] == "work") {
    const checkpoint::DirectoryLock lock(files, arguments[1], arguments[2]);
    const auto last = parse_int(arguments[4], "LAST");
    for (int64_t step = parse_int(arguments[3], "FIRST"); step <= last; ++step) {
      save_step_keeping(files, step, parse_int(arguments[5], "KEEP"), arguments[1]);
    }
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "hold") {
    const checkpoint::DirectoryLock lock(files, arguments[1], arguments[2]);
    std::printf("%lld\n", static_cast<long long>(lock.generation()));
    std::fflush(stdout);
    std::getchar();
    return 0;
  }
  throw InvalidArgument("usage: checkpoint_job save|slices|work|convert|hold ...");
}

}  // namespace
}  // namespace tessera::checkpoint::faults

int main(int argc, char** argv) {
  try {
    return tessera::checkpoint::faults::run({argv + 1, argv + argc});
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
