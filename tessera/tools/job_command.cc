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

constexpr const char* kScript = R"(import sys
try:
    from tessera_operator.job_command import main
except ModuleNotFoundError as missing:
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
  std::vector<std::string> command = {python, "-c", kScript};
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
