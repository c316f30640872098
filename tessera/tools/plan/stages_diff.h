// `tessera plan --diff` of two pipelines, as `tessera plan --stages --json` has written them: what they do differently.
#pragma once

#include <string>

namespace tessera::tools {

// Whether the file holds what stages_json() writes. Throws IoError where it cannot be read.
bool is_stages_file(const std::string& path);

// The ranks, time and memory of the stages of both, and the cells that are on another stage. Throws UsageError where a
// file holds no pipeline, because one stage was taken, or where the files are of different networks or ranks.
std::string stages_diff_text(const std::string& first, const std::string& second);

}  // namespace tessera::tools
