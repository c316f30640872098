// Checkpoints of M ranks for N others, and the files that say how tensors are split.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

using checkpoint::ParameterLayout;

void bind_layout(nb::module_& m) {
  auto layout = nb::class_<ParameterLayout>(m, "ParameterLayout", R"(How one parameter lies on the ranks of its stage.

device_matrix: the ranks as a grid, outermost axis first. tensor_map: for each dim the axes that split it, outermost first,
counted from the right (0 is the last); [] is a dim that is whole. opt_weight_shard_size > 1: each slice is cut further on
dim 0, over so many ranks that lie opt_weight_shard_step apart. tensor_shape: of the whole, [] where it is not known.)");
  layout.def(
      "__init__",
      [](ParameterLayout* self, const std::string& name, const std::vector<int64_t>& device_matrix,
         const std::vector<std::vector<int64_t>>& tensor_map, const std::vector<int64_t>& tensor_shape, int64_t step,
         int64_t size, int64_t field, const std::vector<int64_t>& split_shape, const std::vector<int64_t>& offset) {
        ParameterLayout made{.name = name,
                             .device_matrix = device_matrix,
                             .tensor_map = tensor_map,
                             .tensor_shape = tensor_shape,
                             .param_split_shape = split_shape,
                             .indices_offset = offset,
                             .field = field,
                             .opt_weight_shard_step = step,
                             .opt_weight_shard_size = size};
        check_layout(made, "ParameterLayout");
        new (self) ParameterLayout(std::move(made));
      },
      "name"_a, "device_matrix"_a, "tensor_map"_a, "tensor_shape"_a = nb::make_tuple(), "opt_weight_shard_step"_a = 0,
      "opt_weight_shard_size"_a = 0, "field"_a = 0, "param_split_shape"_a = nb::make_tuple(),
      "indices_offset"_a = nb::make_tuple());
  layout.def_ro("name", &ParameterLayout::name);
  layout.def_ro("device_matrix", &ParameterLayout::device_matrix);
  layout.def_ro("tensor_map", &ParameterLayout::tensor_map);
  layout.def_ro("tensor_shape", &ParameterLayout::tensor_shape);
  layout.def_ro("param_split_shape", &ParameterLayout::param_split_shape);
  layout.def_ro("indices_offset", &ParameterLayout::indices_offset);
  layout.def_ro("field", &ParameterLayout::field);
  layout.def_ro("opt_weight_shard_step", &ParameterLayout::opt_weight_shard_step);
  layout.def_ro("opt_weight_shard_size", &ParameterLayout::opt_weight_shard_size);
  layout.def("__eq__", [](const ParameterLayout& self, const ParameterLayout& other) { return self == other; });
  layout.def("__repr__", [](const ParameterLayout& self) {
    const auto shards = self.num_optimizer_shards();
    return nb::str("ParameterLayout({}, device_matrix={}, tensor_map={}{})")
        .format(self.name, self.device_matrix, self.tensor_map,
                shards > 1 ? fmt::format(", {} optimizer shards", shards) : "");
  });
}

checkpoint::TransformOptions options_of(int num_threads, bool check_replicas) {
  if (num_threads < 0) throw InvalidArgument("num_threads must be at least 0, all cores, got {}", num_threads);
  return {.num_threads = num_threads, .check_replicas = check_replicas};
}

}  // namespace

void bind_conversion(nb::module_& m) {
  bind_layout(m);
  helped(m).def(
      "transform_checkpoints",
      [](const Path& src, const Path& dst, const Path& prefix, const Path& src_strategy, const Path& dst_strategy,
         int num_threads, bool check_replicas) {
        const nb::gil_scoped_release release;
        return to_paths(checkpoint::transform_checkpoints(FileSystem::local(), src.bytes, dst.bytes, prefix.bytes,
                                                          src_strategy.bytes, dst_strategy.bytes,
                                                          options_of(num_threads, check_replicas))
                            .files);
      },
      "src_directory"_a, "dst_directory"_a, "prefix"_a, "src_strategy_file"_a = "", "dst_strategy_file"_a = "",
      "num_threads"_a = 0, "check_replicas"_a = true,
      R"(Converts src_directory/rank_M/*.ckpt to dst_directory/rank_N/PREFIXN.ckpt. Returns the files, by rank.

Any two numbers of ranks. Of each rank the newest step that all have is taken. A strategy file of "" is one rank that
holds everything whole. dst_directory appears when it is complete; interrupted, the next call goes on. num_threads: files
that are converted at the same time, 0: four. check_replicas=False: ranks of one slice may have different values.
Raises InvalidArgument for a missing rank, and for strategies and sources that contradict each other.)");
  helped(m).def(
      "rank_list_for_transform",
      [](int64_t rank, const Path& src_strategy, const Path& dst_strategy) {
        return checkpoint::rank_list_for_transform(FileSystem::local(), rank, src_strategy.bytes, dst_strategy.bytes);
      },
      "rank"_a, "src_strategy_file"_a = "", "dst_strategy_file"_a = "",
      "The ranks of the source whose checkpoints are needed for this rank of the destination, ascending.");
  helped(m).def(
      "transform_checkpoint_by_rank",
      [](int64_t rank, const std::map<int64_t, Path>& files, const Path& path, const Path& src_strategy,
         const Path& dst_strategy, bool check_replicas) {
        std::map<int64_t, std::string> of_ranks;
        for (const auto& [source, file] : files) of_ranks[source] = file.bytes;
        const nb::gil_scoped_release release;
        checkpoint::transform_checkpoint_by_rank(FileSystem::local(), rank, of_ranks, path.bytes, src_strategy.bytes,
                                                 dst_strategy.bytes, options_of(0, check_replicas));
      },
      "rank"_a, "checkpoint_files"_a, "save_path"_a, "src_strategy_file"_a = "", "dst_strategy_file"_a = "",
      "check_replicas"_a = true,
      "Writes one rank's checkpoint of the files, by rank, that rank_list_for_transform names: the same bytes as "
      "transform_checkpoints.");
  helped(m).def(
      "merge_pipeline_strategys",
      [](const Path& directory, const Path& path) {
        checkpoint::merge_pipeline_strategys(FileSystem::local(), directory.bytes, path.bytes);
      },
      "directory"_a, "dst_strategy_file"_a, "One strategy file of those of all pipeline stages.");
  helped(m).def(
      "build_searched_strategy",
      [](const Path& path) { return checkpoint::build_searched_strategy(FileSystem::local(), path.bytes); }, "path"_a,
      "The layouts of a strategy file, by parameter.");
  helped(m).def(
      "merge_sliced_parameter",
      [](nb::handle slices, const ParameterLayout* layout) {
        std::vector<Tensor> tensors;
        for (const nb::handle slice : nb::iter(slices)) tensors.push_back(to_tensor(slice));
        const nb::gil_scoped_release release;
        return checkpoint::merge_sliced_parameter(tensors, layout);
      },
      "slices"_a, "layout"_a = nb::none(),
      "The whole tensor of the slices that the ranks hold, in rank order; joined along dim 0 without a layout.");
  helped(m).def(
      "slice_parameter",
      [](nb::handle whole, const ParameterLayout& layout, int64_t rank) {
        return checkpoint::slice_parameter(to_tensor(whole), layout, rank);
      },
      "whole"_a, "layout"_a, "rank"_a, "What the rank holds of a tensor: what merge_sliced_parameter joins.");
  helped(m).def(
      "restore_group_info_list",
      [](const Path& path) { return checkpoint::restore_group_info_list(FileSystem::local(), path.bytes); }, "path"_a,
      "The ranks whose checkpoints may replace that of the rank that wrote the group file.");
}

}  // namespace tessera::python
