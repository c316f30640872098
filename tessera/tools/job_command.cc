#include "tessera/tools/job_command.h"

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

Looks at the manifest of an MSJob or a TesseraJob, and runs it on this machine, before a cluster sees it.
FILE is a manifest, as YAML or JSON; -: standard input.

  render    print the objects that a job becomes
  run       run a job on this machine

This command needs Tessera's operator for Kubernetes, a package of Python, whose own help has the options of each. In Tessera's sources:
  python3 -m pip install ./deploy/operator
PYTHON names an interpreter that has it; without that it is python3. docs/kubernetes.md tells of both.)";

// sys.argv[1] is kHelp.
constexpr const char* kScript = R"(import sys
text = sys.argv.pop(1)
try:
    from tessera_operator.job_command import main
except ModuleNotFoundError as missing:
    if any(word in ("-h", "--help") for word in sys.argv[1:]):
        print(text)
        sys.exit(0)
    print(f"error: tessera job: {sys.executable} has no package {missing.name}. Manifests are read by Tessera's operator for "
          "Kubernetes: in Tessera's sources, python3 -m pip install ./deploy/operator; or name by PYTHON an interpreter that has it",
          file=sys.stderr)
    sys.exit(1)
sys.exit(main())
)";

// Programs that a manifest names are sought beside this command first.
void put_own_folder_into_path() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  const char* path = std::getenv("PATH");
  const std::string folder = own.parent_path().string();
  setenv("PATH", (path == nullptr ? folder : folder + ":" + path).c_str(), 1);
}

}  // namespace

void add_job_command(CLI::App& app) {
  auto* job = app.add_subcommand("job", "look at a manifest of a job on Kubernetes, and run it on this machine");
  job->allow_extras();
}

void hand_over_job(const std::vector<std::string>& words) {
  const char* named = std::getenv("PYTHON");
  const std::string python = named == nullptr || *named == '\0' ? "python3" : named;
  std::vector<std::string> command = {python, "-c", kScript, kHelp};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  put_own_folder_into_path();
  execvp(python.c_str(), arguments.data());
  throw IoError(
      "tessera job: cannot start the interpreter \"{}\"{}: {}. Manifests are read by Tessera's operator for "
      "Kubernetes, a "
      "package of Python: in Tessera's sources, deploy/operator",
      python, named == nullptr ? "" : ", which PYTHON names", std::strerror(errno));
}

}  // namespace tessera::tools
