#include "tessera/tools/job_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tessera/tessera.h"

namespace tessera::tools {
namespace {

// What of the command can be said without its package.
constexpr const char* kHelp = R"(usage: tessera job render [OPTIONS] FILE
       tessera job run --local [OPTIONS] FILE
       tessera job manifests [OPTIONS]

Looks at the manifest of an MSJob or a TesseraJob, and runs it on this machine, before a cluster sees it; prints what
installs the operator that runs them in a cluster.
FILE is a manifest, as YAML or JSON; -: standard input.

  render      print the objects that a job becomes
  run         run a job on this machine
  manifests   print what installs the operator in a cluster

This command needs Tessera's operator for Kubernetes, a package of Python, whose own help has the options of each. It
comes with Tessera's wheel and with its package of Debian, and is a component of `cmake --install`, operator. From the
sources: python3 -m pip install ./deploy/operator
PYTHON names the interpreter that reads it; without that it is python3. docs/kubernetes.md tells of both.)";

// sys.argv[1] is kHelp, sys.argv[2] the folder of this command, where that is known. A package that the interpreter has
// goes before the one that came with the command, which is read alone: what lies beside it is another Python's.
constexpr const char* kScript = R"(import sys
sys.path[:] = [folder for folder in sys.path if folder]  # no module of the user's folder
import importlib.util
import os
text, own = sys.argv.pop(1), sys.argv.pop(1)
name = "tessera_operator"
if importlib.util.find_spec(name) is None:
    # Below a prefix, as /usr; in a wheel; in a build.
    for place in ("../lib/python3/dist-packages", "../..", "../python"):
        file = os.path.normpath(os.path.join(own, place, name, "__init__.py"))
        if own and os.path.isfile(file):
            spec = importlib.util.spec_from_file_location(name, file)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
            break
    else:
        if any(word in ("-h", "--help") for word in sys.argv[1:]):
            print(text)
            sys.exit(0)
        print(f"error: tessera job: neither has {sys.executable} the package {name}, Tessera's operator for Kubernetes, by which manifests "
              f"are read, nor is it installed with this command, in {own}. It comes with Tessera's wheel and with its package of Debian, and "
              "is a component of `cmake --install`, operator; in Tessera's sources: python3 -m pip install ./deploy/operator; or name by "
              "PYTHON an interpreter that has it", file=sys.stderr)
        sys.exit(1)
from tessera_operator.job_command import main
sys.exit(main())
)";

// Where this command is; "" where the system does not say that.
std::string own_folder() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : own.parent_path().string();
}

// Programs that a manifest names are sought beside this command first.
void put_into_path(const std::string& folder) {
  if (folder.empty()) return;
  const char* path = std::getenv("PATH");
  setenv("PATH", (path == nullptr ? folder : folder + ":" + path).c_str(), 1);
}

// Python takes some 70 KiB before the first line of a script, and the system ends it by SIGSEGV where it has less.
void require_stack_of_python() {
  constexpr rlim_t kLeastStackBytes = rlim_t{128} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStackBytes) return;
  throw IoError(
      "tessera job: `ulimit -s` leaves the stack {} KiB, and this command's interpreter of Python needs {}; raise it, "
      "ulimit -s 8192 is usual",
      limit.rlim_cur >> 10, kLeastStackBytes >> 10);
}

}  // namespace

void add_job_command(CLI::App& app) {
  auto* job = app.add_subcommand("job", "look at a manifest of a job on Kubernetes, and run it on this machine");
  job->allow_extras();
}

void hand_over_job(const std::vector<std::string>& words) {
  require_stack_of_python();
  const char* named = std::getenv("PYTHON");
  const std::string python = named == nullptr || *named == '\0' ? "python3" : named;
  const std::string folder = own_folder();
  std::vector<std::string> command = {python, "-c", kScript, kHelp, folder};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  put_into_path(folder);
  execvp(python.c_str(), arguments.data());
  throw IoError(
      "tessera job: cannot start the interpreter \"{}\"{}: {}. Manifests are read by Tessera's operator for "
      "Kubernetes, a package of Python: name by PYTHON an interpreter, of Python 3.10 or later, that has PyYAML",
      python, named == nullptr ? "" : ", which PYTHON names", std::strerror(errno));
}

}  // namespace tessera::tools
