#include "tessera/tools/ckpt_command.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/arguments/usage.h"

namespace tessera::tools {
namespace {

constexpr const char* kJsonHelp = "print one JSON object";

// A variable that is not set, in a script, becomes an argument that is "".
CLI::Validator not_empty() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "must be a path, got \"\"" : std::string(); }, "");
}

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

void add_ls(CLI::App& ckpt) {
  static std::string path = ".";
  static bool json = false;
  auto* ls = ckpt.add_subcommand("ls", "list the checkpoints of a directory");
  ls->footer(
      "Lists *.ckpt and rank_N/*.ckpt with size, number of values, epoch and step. Looks at headers and manifests "
      "only.\n"
      "Where ranks saved into one directory, their files are one checkpoint, and the size is that of all of them.\n"
      "Example:\n"
      "  tessera ckpt ls checkpoints");
  ls->add_option("path", path, "directory or file")->check(not_empty())->capture_default_str();
  ls->add_flag("--json", json, kJsonHelp);
  ls->callback([] {
    const auto list = checkpoint::list_checkpoints(FileSystem::local(), path);
    print(json ? checkpoint::list_json(list) : checkpoint::list_table(list));
  });
}

void add_inspect(CLI::App& ckpt, int& exit_code) {
  static std::string file;
  static bool json = false;
  auto* inspect = ckpt.add_subcommand("inspect", "show what a checkpoint holds, and whether it is whole");
  inspect->footer(
      "Prints name, type, size and checksum of each value, and the value of numbers and texts. Exit code 1 when it is\n"
      "damaged. Where ranks saved into one directory, any of their files stands for the checkpoint; the size is that "
      "of\n"
      "all of them, as `tessera ckpt ls` has it.\n"
      "Example:\n"
      "  tessera ckpt inspect checkpoints/CKP-2_73.ckpt");
  inspect->add_option("file", file, "a .ckpt file, or a directory, of which the newest that is whole is shown")
      ->check(not_empty())
      ->required();
  inspect->add_flag("--json", json, kJsonHelp);
  inspect->callback([&exit_code] {
    if (FileSystem::local().is_directory(file)) {
      const auto choice = checkpoint::find_newest(FileSystem::local(), file, "");
      for (const auto& skip : choice.skipped) std::fprintf(stderr, "skipped %s\n", skip.reason.c_str());
      if (!choice.found()) throw InvalidArgument("{}: holds no checkpoint that can be used", file);
      file = choice.path;
    }
    const auto result = json ? checkpoint::inspect_json(FileSystem::local(), file)
                             : checkpoint::inspect_table(FileSystem::local(), file);
    print(result.text);
    if (result.state == checkpoint::Verified::kNo) {
      std::fprintf(stderr, "error: %s\n", result.problem.c_str());
      exit_code = 1;
    }
  });
}

// Scripts that restart a job must tell "nothing yet" from "all damaged".
constexpr int kNoCheckpoint = 3;
constexpr int kNoUsableCheckpoint = 4;

void add_verify(CLI::App& ckpt, int& exit_code) {
  static std::string path;
  static bool json = false;
  auto* verify = ckpt.add_subcommand("verify", "check that every byte is as it was written");
  verify->footer(
      "Reads whole files and compares them with their manifests. What is wrong is named, nothing is deleted.\n"
      "Exit code 1 when one is DAMAGED, or UNREADABLE: the disk or a permission keeps it from us; 3 when there is no\n"
      "checkpoint at all.\n"
      "Examples:\n"
      "  tessera ckpt verify checkpoints/CKP-2_73.ckpt\n"
      "  tessera ckpt verify dst_checkpoints            also those in rank_0, rank_1, ...");
  verify->add_option("path", path, "a .ckpt file, or a directory")->check(not_empty())->required();
  verify->add_flag("--json", json, kJsonHelp);
  verify->callback([&exit_code] {
    const auto list = checkpoint::verify_checkpoints(FileSystem::local(), path);
    print(json ? checkpoint::verify_json(list) : checkpoint::verify_table(list));
    for (const auto& file : list) {
      if (file.state == checkpoint::Verified::kNo) exit_code = 1;
    }
    if (!list.empty()) return;
    std::fprintf(stderr, "error: %s\n", checkpoint::nothing_to_verify(FileSystem::local(), path).c_str());
    exit_code = kNoCheckpoint;
  });
}

void add_newest(CLI::App& ckpt, int& exit_code) {
  static std::string directory = ".";
  static std::string prefix;
  auto* newest = ckpt.add_subcommand("newest", "print the checkpoint that a job would go on from");
  newest->footer(
      "Prints the path of the newest one that is whole, by epoch and step; what was passed over, and why, goes to "
      "standard\n"
      "error. One without a manifest is taken only where none is verified. Of folders rank_N, in which ranks saved or\n"
      "`ckpt transform` wrote their parts, it is the one that all hold together; the lowest rank's file stands\n"
      "for all of them. Where one of them is missing, rank 0's too, it is passed over.\n"
      "Exit code 3 when there is none, 4 when there are some and none can be used, 1 when the directory does not "
      "exist:\n"
      "a job that starts for the first time must make it before.\n"
      "Example:\n"
      "  tessera ckpt newest checkpoints --prefix CKP");
  newest->add_option("directory", directory, "the directory with the checkpoints")
      ->check(not_empty())
      ->capture_default_str();
  newest
      ->add_option("--prefix", prefix,
                   "the prefix of their names, with its successors PREFIX_1 and so on; default: any")
      ->check(file_prefix());
  newest->callback([&exit_code] {
    if (!FileSystem::local().is_directory(directory)) {
      throw InvalidArgument(
          "{}: is no directory; make it before the first start: exit code 3 then says that it is empty", directory);
    }
    const auto choice = checkpoint::find_newest(FileSystem::local(), directory, prefix);
    for (const auto& skip : choice.skipped) std::fprintf(stderr, "skipped %s\n", skip.reason.c_str());
    if (choice.found()) return print(choice.path + "\n");
    std::fprintf(stderr, "%s: %s\n", directory.c_str(),
                 choice.skipped.empty() ? "no checkpoint" : "no checkpoint that can be used");
    exit_code = choice.skipped.empty() ? kNoCheckpoint : kNoUsableCheckpoint;
  });
}

void add_diff(CLI::App& ckpt, int& exit_code) {
  static std::string left;
  static std::string right;
  static std::string left_strategy;
  static std::string right_strategy;
  static bool bytes = false;
  static bool json = false;
  auto* diff = ckpt.add_subcommand("diff", "compare two checkpoints, however they are split");
  diff->footer(
      "Whole tensors are compared: by their hashes where the manifests of both sides have them, else bit by bit.\n"
      "Manifests are believed of the files that they describe only, so these are read and verified first; one that is\n"
      "damaged is named, and nothing is compared.\n"
      "Directories with rank_N folders are joined by their strategy files, or by their manifests. Of a directory the\n"
      "newest checkpoint is taken. Where ranks saved into one directory, all their files are, though one is named. A\n"
      "file of a folder rank_N is compared as it is. Which files were taken is said on standard error, or by --json.\n"
      "Prints - for what only LEFT has, + for what only RIGHT has, ! for other types, ~ for other\n"
      "values. Exit code 1 when there is a difference, or damage.\n"
      "Examples:\n"
      "  tessera ckpt diff CKP-1_73.ckpt CKP-2_73.ckpt\n"
      "  tessera ckpt diff src_checkpoints dst_checkpoints --left_strategy src_strategy.ckpt");
  diff->add_option("left", left, "file or directory")->check(not_empty())->required();
  diff->add_option("right", right, "file or directory")->check(not_empty())->required();
  diff->add_option("--left_strategy", left_strategy, "the strategy file of LEFT");
  diff->add_option("--right_strategy", right_strategy, "the strategy file of RIGHT");
  diff->add_flag("--bytes", bytes, "compare all values as they are, and verify nothing");
  diff->add_flag("--json", json, kJsonHelp);
  diff->callback([&exit_code] {
    const auto found =
        checkpoint::diff_checkpoints(FileSystem::local(), left, right, left_strategy, right_strategy, bytes);
    if (!json) std::fprintf(stderr, "%s\n", checkpoint::diff_sides(found).c_str());
    print(json ? checkpoint::diff_json(found) : checkpoint::diff_table(found));
    if (!found.differences.empty()) exit_code = 1;
  });
}

// One line that changes, on a terminal only.
void show_progress(const checkpoint::TransformProgress& progress) {
  if (progress.num_bytes == 0) return;
  std::fprintf(stderr, "\r%3lld %%  %lld of %lld files, %s of %s ",
               static_cast<long long>(100 * progress.bytes_done / progress.num_bytes),
               static_cast<long long>(progress.files_done), static_cast<long long>(progress.num_files),
               format_bytes(progress.bytes_done).c_str(), format_bytes(progress.num_bytes).c_str());
  if (progress.files_done == progress.num_files) std::fputc('\n', stderr);
}

// Of a directory the newest checkpoint was taken: whoever named it wants to know which that is.
void say_what_was_read(const std::vector<std::string>& sources) {
  std::fprintf(stderr, "read %s\n", checkpoint::files_text(sources).c_str());
}

std::string report_json(const checkpoint::TransformReport& report) {
  return nlohmann::ordered_json{{"sources", report.sources},
                                {"files", report.files},
                                {"bytes_written", report.num_bytes},
                                {"files_kept", report.files_kept}}
             .dump(1) +
         "\n";
}

void add_transform(CLI::App& ckpt) {
  static std::string from;
  static std::string to;
  static std::string prefix;
  static std::string src_strategy;
  static std::string dst_strategy;
  static checkpoint::TransformOptions options;
  static bool no_verify = false;
  static bool any_replica = false;
  static bool json = false;
  auto* transform = ckpt.add_subcommand("transform", "convert checkpoints of M ranks to those of N");
  transform->footer(
      "Reads SOURCE/rank_M/*.ckpt, of each rank the newest step that all have, and writes "
      "DESTINATION/rank_N/PREFIXN.ckpt.\n"
      "Strategy files say how each side is split; without one, a side is one rank that holds everything (a source "
      "that\n"
      "tessera converted before needs none: its manifests say it). Of a pipeline, merge the stages' files first.\n"
      "Where ranks saved into one directory, SOURCE is that directory, or the file of a checkpoint in it; the "
      "manifest\n"
      "says where all slices lie, and --src_strategy is not needed.\n"
      "The destination appears when it is complete; interrupted, the same command goes on where it was. Which files\n"
      "were read is said on standard error, or by --json.\n"
      "Examples:\n"
      "  tessera ckpt transform src_checkpoints dst_checkpoints --prefix transformed \\\n"
      "      --src_strategy src_strategy.ckpt --dst_strategy dst_strategy.ckpt\n"
      "  tessera ckpt transform src_checkpoints whole --src_strategy src_strategy.ckpt      one file, for one device\n"
      "  tessera ckpt transform ckpt/CKP-2_73.ckpt whole                                    of ranks that saved "
      "together");
  transform
      ->add_option("source", from, "directory with rank_0, rank_1, ... or with the files of all ranks; or one of these")
      ->check(not_empty())
      ->required();
  transform->add_option("destination", to, "directory to be made")->check(not_empty())->required();
  transform->add_option("--prefix", prefix, "what the new files' names begin with")->check(file_prefix());
  transform->add_option("--src_strategy", src_strategy, "the strategy file of the source");
  transform->add_option("--dst_strategy", dst_strategy, "the strategy file of the destination");
  transform->add_option("--threads", options.num_threads, "the threads that copy values; 0: four")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  transform->add_flag("--no_verify", no_verify, "do not compare what is read with the source's checksums");
  transform->add_flag("--any_replica", any_replica, "accept ranks that hold the same slice with different values");
  transform->add_flag("--json", json, kJsonHelp);
  transform->callback([] {
    options.verify = !no_verify;
    options.check_replicas = !any_replica;
    if (::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
    const auto report =
        checkpoint::transform_checkpoints(FileSystem::local(), from, to, prefix, src_strategy, dst_strategy, options);
    if (json) return print(report_json(report));
    say_what_was_read(report.sources);
    print(fmt::format("{}: {}, {} written{}\n", to, plural(std::ssize(report.files), "checkpoint"),
                      format_bytes(report.num_bytes),
                      report.files_kept > 0 ? fmt::format(", {} were there already", report.files_kept) : ""));
  });
}

void add_merge_strategies(CLI::App& ckpt) {
  static std::string directory;
  static std::string file;
  static bool json = false;
  auto* merge = ckpt.add_subcommand("merge-strategies", "make one strategy file of those of all pipeline stages");
  merge->footer(
      "Example:\n"
      "  tessera ckpt merge-strategies src_pipeline_strategys src_strategy.ckpt");
  merge->add_option("directory", directory, "the stages' strategy files, .ckpt or .json")
      ->check(not_empty())
      ->required();
  merge->add_option("file", file, "strategy file to be written; JSON when it ends with .json")
      ->check(not_empty())
      ->required();
  merge->add_flag("--json", json, kJsonHelp);
  merge->callback([] {
    checkpoint::merge_pipeline_strategys(FileSystem::local(), directory, file);
    const auto num_parameters = checkpoint::build_searched_strategy(FileSystem::local(), file).size();
    print(json ? nlohmann::ordered_json{{"file", file}, {"num_parameters", num_parameters}}.dump(1) + "\n"
               : fmt::format("{}: {}\n", file, plural(static_cast<int64_t>(num_parameters), "parameter")));
  });
}

void add_report_options(CLI::App& command, bool& json, bool& quiet) {
  command.add_flag("--json", json, "say what was written as one JSON object");
  command.add_flag("--quiet", quiet, "say nothing");
}

// That `path` was written from `sources`, with the tensors of the .safetensors file that it was made of, or that it is.
void report_written(const std::string& path, const std::vector<std::string>& sources, const std::string& safetensors,
                    bool json, bool quiet) {
  if (quiet) return;
  FileSystem& files = FileSystem::local();
  const auto num_tensors = checkpoint::read_safetensors_header(files, safetensors).size();
  const int64_t size_bytes = files.size_bytes(path);
  print(json ? nlohmann::ordered_json{{"file", path},
                                      {"sources", sources},
                                      {"num_tensors", num_tensors},
                                      {"size_bytes", size_bytes}}
                       .dump(1) +
                   "\n"
             : fmt::format("{}: {} tensor{}, {} written\n", path, num_tensors, num_tensors == 1 ? "" : "s",
                           format_bytes(size_bytes)));
}

void add_export(CLI::App& ckpt) {
  static std::string source;
  static std::string file;
  static std::string strategy;
  static bool json = false;
  static bool quiet = false;
  auto* command = ckpt.add_subcommand("export", "write a checkpoint as one .safetensors file of whole tensors");
  command->footer(
      "Of a directory the newest checkpoint is taken, of a checkpoint that ranks saved into one directory all files, "
      "though\n"
      "one is named: its manifest says how they are put together. Those of folders rank_N need the strategy file, or\n"
      "manifests that say it. Which files were taken is said on standard error, or by --json.\n"
      "Examples:\n"
      "  tessera ckpt export CKP-2_73.ckpt net.safetensors\n"
      "  tessera ckpt export src_checkpoints net.safetensors --strategy src_strategy.ckpt");
  command->add_option("checkpoint", source, "a .ckpt file, or a directory, of whole values or with rank_0, rank_1, ...")
      ->check(not_empty())
      ->required();
  command->add_option("file", file, "a .safetensors file to be written")
      ->check(file_ending_in(".safetensors"))
      ->required();
  command->add_option("--strategy", strategy, "strategy file of a directory with rank_0, rank_1, ...");
  add_report_options(*command, json, quiet);
  command->callback([] {
    const auto sources = checkpoint::export_safetensors(FileSystem::local(), source, file, strategy);
    if (!json && !quiet) say_what_was_read(sources);
    report_written(file, sources, file, json, quiet);
  });
}

void add_import(CLI::App& ckpt) {
  static std::string file;
  static std::string target;
  static bool json = false;
  static bool quiet = false;
  auto* command = ckpt.add_subcommand("import", "write a .safetensors file as a checkpoint with its manifest");
  command->footer(
      "Example:\n"
      "  tessera ckpt import net.safetensors net.ckpt");
  command->add_option("file", file, "a .safetensors file")->check(file_ending_in(".safetensors"))->required();
  command->add_option("checkpoint", target, "a .ckpt file to be written")->check(file_ending_in(".ckpt"))->required();
  add_report_options(*command, json, quiet);
  command->callback([] {
    checkpoint::import_safetensors(FileSystem::local(), file, target);
    report_written(target, {file}, file, json, quiet);
  });
}

}  // namespace

void add_ckpt_command(CLI::App& app, int& exit_code) {
  auto* ckpt = app.add_subcommand("ckpt", "look into checkpoints, compare and convert them");
  ckpt->require_subcommand(1);
  add_ls(*ckpt);
  add_inspect(*ckpt, exit_code);
  add_verify(*ckpt, exit_code);
  add_newest(*ckpt, exit_code);
  add_diff(*ckpt, exit_code);
  add_transform(*ckpt);
  add_merge_strategies(*ckpt);
  add_export(*ckpt);
  add_import(*ckpt);
}

}  // namespace tessera::tools
