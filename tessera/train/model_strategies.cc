#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/group_file.h"
#include "tessera/train/model.h"
#include "tessera/train/rank_barrier.h"
#include "tessera/train/strategy_record.h"

namespace tessera::train {

void Model::read_strategies() {
  if (!is_semi_auto() || options_.strategy_ckpt_load_file.empty()) return;
  strategies_ = checkpoint::read_strategy_file(context_.file_system(), options_.strategy_ckpt_load_file);
}

void Model::write_strategies(const session::Executable& executable, bool is_training) {
  if (!is_semi_auto() && !is_data_parallel()) return;
  const auto& logical = executable.compiled().logical;
  const auto& plan = executable.compiled().plan;
  const auto& groups = executable.compiled().groups;
  if (is_training || layouts_.empty()) layouts_ = record_layouts(logical, plan);
  if (!is_semi_auto() || strategies_written_) return;
  strategies_written_ = true;
  if (strategies_ && is_training) require_recorded(*strategies_, logical, plan, options_.strategy_ckpt_load_file);
  FileSystem& files = context_.file_system();
  const bool writes_strategies = is_writer(options_.strategy_ckpt_save_file);
  const bool writes_groups = is_writer(options_.group_ckpt_save_file);
  RankBarrier barrier(context_.world());
  checkpoint::run_together(barrier, "cannot record strategies", [&] {
    if (writes_strategies) {
      checkpoint::write_strategy_file(files, options_.strategy_ckpt_save_file, record_strategies(logical, plan));
    }
    if (writes_groups) {
      checkpoint::write_group_file(files, options_.group_ckpt_save_file,
                                   record_groups(logical, plan, groups, context_.rank()));
    }
    return std::string();
  });
}

// Of the ranks that name one file, the first. Where all name one they may do so on several hosts.
bool Model::is_writer(const std::string& path) {
  RankBarrier barrier(context_.world());
  const auto paths = barrier.exchange(path);
  if (std::find(paths.begin(), paths.end(), "") == paths.end()) {
    const int first = checkpoint::find_writer(context_.file_system(), barrier, parent_path(path));
    return first == context_.rank() || paths[static_cast<size_t>(first)] != path;
  }
  const auto own = paths.begin() + context_.rank();
  return !path.empty() && std::find(paths.begin(), own, path) == own;
}

}  // namespace tessera::train
