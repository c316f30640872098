// cluster::run is how a program starts: as one rank, as mpirun's or `tessera run`'s rank, or as all ranks of a job in
// this process, whatever the environment says.
//     int main(int argc, char** argv) {
//       return cluster::run(argc, argv, [](cluster::Context& context) { ... });
//     }
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/cluster/context.h"

namespace tessera::cluster {

using Arguments = std::vector<std::string>;  // without the program's name

// Calls f(context, arguments) once per rank of this process. Returns the exit code: what f returned (the first code
// that is not 0), or 1 after an exception. An exception is printed as `rank R: error: ...` and ends the other ranks'
// waits at once, so that every rank of the job ends with exit code 1. Never throws.
int run_program(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f);

// f takes (Context&) or (Context&, const Arguments&) and returns int or nothing.
template <typename F>
int run(int argc, char** argv, F&& f) {
  return run_program(argc, argv, [&f](Context& context, const Arguments& arguments) -> int {
    const auto call = [&]() -> decltype(auto) {
      if constexpr (std::is_invocable_v<F&, Context&, const Arguments&>) {
        return f(context, arguments);
      } else {
        return f(context);
      }
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return 0;
    } else {
      return call();
    }
  });
}

}  // namespace tessera::cluster
