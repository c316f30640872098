// cluster::run is how a program starts: as one rank, as mpirun's or `tessera run`'s rank, or as all ranks of a job in
// this process, whatever the environment says.
//     int main(int argc, char** argv) {
//       return cluster::run(argc, argv, [](cluster::Context& context) { ... });
//     }
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/cluster/ranks/exit_codes.h"
#include "tessera/cluster/ranks/survey.h"

namespace tessera::cluster {

using Arguments = std::vector<std::string>;  // without the program's name

// Calls f(context, arguments) once per rank of this process. Returns the exit code: what f returned, kExitFailure after
// an exception, or kExitUsage where a variable of the environment makes no sense. Where ranks are threads of this
// process, it is the code of the rank that failed first. An exception is printed as `rank R: error: ...`. An exception,
// or a code other than 0, ends the other ranks' waits at once, so that they end with kExitFailure. Where ranks are
// threads, equal errors are printed once. There the process ends if a rank still goes on some seconds after another has
// failed, or the job's timeout after where that is shorter; that rank is named with what it waits in. A program that is
// a job by itself says which signal ends it (say_end_signals). Where standard output could not be written, that is said
// and the code is not 0. Never throws.
int run_program(int argc, char** argv, const std::function<int(Context&, const Arguments&)>& f);

// The same for a program that looks at the hosts of its job: where ranks do not reach each other, f is not called, and
// the exit code is the surveyor's (ranks/survey.h). Ranks that are threads always reach each other.
int run_survey(int argc, char** argv, const Surveyor& surveyor, const std::function<int(Context&)>& f);

// Ends this rank's part of its job as its process ends with `code`: another code than 0 is a failure, of which the
// other ranks hear. With 0 it waits until the other ranks have ended, and if one of them fails instead, prints that as
// `rank R: error: ...`. Returns what the process must end with: `code`, or kExitFailure. run_program calls it; programs
// that start in another way call it themselves. Never throws.
int end_rank(Context& context, int code);

// Starts this process's program again in its place, for the job's next generation, if `error` comes of another rank
// that is lost or silent and the job goes on after a loss. Then it does not return. Else it returns the reason why the
// program cannot be started again, or "" where nobody would want that: the error is this rank's own, or a loss is the
// end of the job.
std::string begin_anew_after(Context& context, const std::exception& error);

// Why an elastic job goes on without this rank, whose process is to end then; "" where it does not. What fails in the
// rank meanwhile is no failure of its own. Where no launcher says so, it is logged.
std::string why_dropped(Context& context);

// Prints `error: MESSAGE` and a line that points to --help; returns kExitUsage. `program` is argv[0].
int usage_error(const std::string& program, const std::string& message);

// Says which of the words that a command line has left over is not known: `unknown option --batchsize; did you mean
// --batch_size?`. `options`: the names that are known.
std::string describe_unknown_words(const std::vector<std::string>& words, const std::vector<std::string>& options);

// From now on this process says "ended by SIGINT" before SIGINT, SIGTERM or SIGHUP ends it. Signals that somebody else
// handles or ignores stay as they are.
void say_end_signals();

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
