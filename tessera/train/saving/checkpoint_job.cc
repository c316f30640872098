#include "tessera/train/saving/checkpoint_job.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/train/saving/checkpoint_values.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
namespace {

// The elements of a value on the way into a file: in memory, or of a stream.
struct Elements {
  TensorView view;  // without memory where they are streamed
  std::optional<checkpoint::StreamedRegion> streamed = std::nullopt;

  checkpoint::Entry entry(const std::string& name) const {
    checkpoint::Entry entry(name, view);
    entry.streamed = streamed;
    return entry;
  }
  void copy_to(const TensorView& to) const { streamed ? read_to(*streamed, to) : copy_elements(view, to); }
  Tensor copy() const {
    const Tensor dense(view.type());
    copy_to(dense.view());
    return dense;
  }
};

Elements elements_of(const CheckpointJob::Value& value) { return {value.piece, value.streamed}; }

// A region of them.
Elements part_of(const Elements& whole, const checkpoint::Region& region) {
  if (!whole.streamed) return {checkpoint::view_of(whole.view, region)};
  checkpoint::StreamedRegion part{whole.streamed->stream, region};
  for (int dim = 0; dim < region.ndim(); ++dim) part.region.offset[dim] += whole.streamed->region.offset[dim];
  return {TensorView(nullptr, part.type()), part};
}

// Puts whole values together, one after the other, on the ranks that write them. Every rank takes part in each.
class Gather {
 public:
  // Values that do not fit into memory are put together in `scratch`.
  Gather(comm::Communicator& group, std::span<const CheckpointJob::Value> values, std::vector<int> receivers,
         const std::optional<ScratchFile>& scratch)
      : group_(group),
        values_(values),
        receivers_(std::move(receivers)),
        scratch_(scratch),
        ranks_(static_cast<size_t>(group.size())) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  void next() {
    const auto& value = values_[next_++];
    current_ = elements_of(value);
    whole_ = Tensor();
    if (!value.held.layout) return;
    const auto regions = checkpoint::holders(value.held, ranks_);
    for (const int receiver : receivers_) {
      const auto has = [&](const auto& holders) {
        return std::find(holders.begin(), holders.end(), receiver) != holders.end();
      };
      // Who has all of it needs nothing of the others.
      const bool has_all = regions.size() == 1 && has(regions.front().ranks);
      if (has_all) continue;
      if (receiver == group_.rank()) current_ = {(whole_ = memory_for(value)).view()};
      for (const auto& [region, ranks] : regions) {
        pass(value, region, has(ranks) ? receiver : ranks.front(), receiver);
      }
    }
  }
  // Of a receiver: the value whole, until the next one.
  const Elements& current() const { return current_; }

 private:
  Tensor memory_for(const CheckpointJob::Value& value) const {
    const Type& type = value.held.type;
    if (!value.is_spilled || !scratch_) return Tensor(type);
    return Tensor::wrap(type, allocate_in_file(*scratch_, type.size_bytes()));
  }

  void pass(const CheckpointJob::Value& value, const checkpoint::Region& region, int from, int to) {
    const Type type{value.held.type.dtype, region.shape};
    if (group_.rank() == to) {
      const auto place = checkpoint::view_of(whole_.view(), region);
      if (from == to) return elements_of(value).copy_to(place);
      if (place.is_dense()) {
        group_.receive(place.data, type.size_bytes(), DType::kU8, from, kCheckpointCalls);
        return;
      }
      const Tensor received(type);
      group_.receive(received.bytes().data(), received.size_bytes(), DType::kU8, from, kCheckpointCalls);
      copy_elements(received.view(), place);
    } else if (group_.rank() == from) {
      const bool is_here = !value.streamed && value.piece.is_dense();
      const Tensor dense = is_here ? Tensor() : elements_of(value).copy();
      const void* data = is_here ? value.piece.data : dense.bytes().data();
      group_.send(data, type.size_bytes(), DType::kU8, to, kCheckpointCalls);
    }
  }

  comm::Communicator& group_;
  std::span<const CheckpointJob::Value> values_;
  std::vector<int> receivers_;
  const std::optional<ScratchFile>& scratch_;
  std::vector<int> ranks_;
  Tensor whole_;
  Elements current_;
  size_t next_ = 0;
};

// Those whose pieces are the model's own memory.
std::vector<CheckpointJob::Value*> values_to_copy(std::vector<CheckpointJob::Value>& values) {
  std::vector<CheckpointJob::Value*> found;
  for (auto& value : values) {
    if (value.region && !value.streamed && value.copy.size_bytes() == 0) found.push_back(&value);
  }
  return found;
}

std::vector<CheckpointJob::Value*> streamed_values(std::vector<CheckpointJob::Value>& values) {
  std::vector<CheckpointJob::Value*> found;
  for (auto& value : values) {
    if (value.region && value.streamed) found.push_back(&value);
  }
  return found;
}

std::vector<checkpoint::StreamedRegion> regions_of(const std::vector<CheckpointJob::Value*>& streamed) {
  std::vector<checkpoint::StreamedRegion> regions;
  for (const auto* value : streamed) regions.push_back(*value->streamed);
  return regions;
}

std::vector<Type> types_of(const std::vector<CheckpointJob::Value*>& values) {
  std::vector<Type> types;
  for (const auto* value : values) types.push_back(value->piece.type());
  return types;
}

// Puts those first that are changed first.
void sort_by_update(std::vector<checkpoint::ViewCopy>& copies, std::span<const TensorView> updated) {
  std::map<const void*, size_t> turns;
  for (size_t i = 0; i < updated.size(); ++i) turns.emplace(updated[i].data, i);
  // A piece may begin behind the beginning of the value that it is of.
  const auto turn = [&](const checkpoint::ViewCopy& copy) {
    const auto after = turns.upper_bound(copy.from.data);
    return after == turns.begin() ? updated.size() : std::prev(after)->second;
  };
  std::stable_sort(copies.begin(), copies.end(), [&](const auto& a, const auto& b) { return turn(a) < turn(b); });
}

}  // namespace

bool CheckpointJob::is_first_in_directory() const { return group == nullptr || together.front() == group->rank(); }

std::vector<checkpoint::HeldValue> CheckpointJob::held_values() const {
  std::vector<checkpoint::HeldValue> held;
  for (const auto& value : values) held.push_back(value.held);
  return held;
}

std::vector<std::optional<checkpoint::Region>> CheckpointJob::regions_to_write() const {
  return checkpoint::written_regions(held_values(), together, group->rank());
}

void CheckpointJob::keep_needed_pieces() {
  const auto regions =
      form == SaveForm::kSlices ? regions_to_write() : std::vector<std::optional<checkpoint::Region>>();
  for (size_t i = 0; i < values.size(); ++i) {
    auto& value = values[i];
    if (form == SaveForm::kSlices) {
      if (regions[i]) {
        const Elements part = part_of(elements_of(value), checkpoint::relative(*regions[i], *value.region));
        value.piece = part.view;
        value.streamed = part.streamed;
      }
      value.region = regions[i];
    } else if (form == SaveForm::kWhole && !is_first_in_directory()) {
      const bool sends = value.held.layout && is_first_holder(value.held, group->rank());
      if (!sends) value.region = std::nullopt;
    }
    if (!value.region) {
      value.copy = Tensor();
      value.piece = value.copy.view();
      value.streamed.reset();
    }
  }
}

// What has no room on the device comes to the host now: the next step changes it.
void CheckpointJob::copy_streamed_pieces(Snapshot& snapshot) {
  const auto streamed = streamed_values(values);
  if (streamed.empty()) return;
  const auto regions = regions_of(streamed);
  if (snapshot.reserve_on_device(regions)) {
    const auto copies = snapshot.begin_on_device(regions);
    for (size_t i = 0; i < streamed.size(); ++i) streamed[i]->streamed = copies[i];
    return;
  }
  const auto tensors = snapshot.allocate(types_of(streamed));
  for (size_t i = 0; i < streamed.size(); ++i) {
    auto& value = *streamed[i];
    value.copy = tensors[i];
    elements_of(value).copy_to(value.copy.view());
    value.piece = value.copy.view();
    value.streamed.reset();
  }
}

void CheckpointJob::reserve_snapshot(Snapshot& snapshot) {
  keep_needed_pieces();
  const auto streamed = streamed_values(values);
  if (streamed.empty()) {
    snapshot.allocate(types_of(values_to_copy(values)));
  } else if (!snapshot.reserve_on_device(regions_of(streamed))) {
    snapshot.allocate(types_of(streamed));
  }
}

void CheckpointJob::take_snapshot(Snapshot& snapshot, std::span<const TensorView> updated) {
  keep_needed_pieces();
  copy_streamed_pieces(snapshot);
  const auto copied = values_to_copy(values);
  const auto tensors = snapshot.allocate(types_of(copied));
  std::vector<checkpoint::ViewCopy> copies;
  for (size_t i = 0; i < copied.size(); ++i) {
    auto& value = *copied[i];
    value.copy = tensors[i];
    copies.push_back({value.piece, value.copy.view()});
    value.piece = value.copy.view();
  }
  for (auto& entry : append_info) {
    if (!entry.is_text) entry = checkpoint::Entry(entry.name, Tensor::copy_of(entry.value));
  }
  sort_by_update(copies, updated);
  snapshot.begin(copies);
  snapshot_ = &snapshot;
}

std::string CheckpointJob::run() {
  if (snapshot_ != nullptr) snapshot_->finish_in_background();
  if (form == SaveForm::kAlone) {
    if (before_write) before_write();
    auto saved = save_own_values();
    if (after_commit) after_commit();
    return saved;
  }
  RankBarrier barrier(*group);
  const auto on_first = [&](const std::function<void()>& step) {
    checkpoint::run_together(barrier, "cannot save", [&] {
      if (step && is_first_in_directory()) step();
      return std::string();
    });
  };
  on_first(before_write);
  std::string saved;
  switch (form) {
    case SaveForm::kAlone: break;
    case SaveForm::kOwn:
      checkpoint::run_together(barrier, "cannot save", [&] { return saved = save_own_values(); });
      break;
    case SaveForm::kWhole: saved = save_whole(); break;
    case SaveForm::kSlices: saved = save_own_slices(); break;
  }
  on_first(after_commit);
  return saved;
}

std::string CheckpointJob::save_own_values() {
  return checkpoint::save(
      *files, {.path = path, .append_info = append_info, .encryption = encryption}, values.size(),
      [&](size_t i) { return elements_of(values[i]).entry(values[i].held.name); }, info);
}

std::string CheckpointJob::save_whole() {
  RankBarrier barrier(*group);
  const auto firsts = barrier.exchange(is_first_in_directory() ? "writes" : "");
  std::vector<int> receivers;
  for (size_t rank = 0; rank < firsts.size(); ++rank) {
    if (!firsts[rank].empty()) receivers.push_back(static_cast<int>(rank));
  }
  Gather gather(*group, values, receivers, scratch);
  // What is written, in order. A value with a row per rank is written as the mean of its rows, which any network takes,
  // and behind that as the rows.
  struct Record {
    const Value& value;
    bool is_of_ranks = false;
  };
  std::vector<Record> records;
  for (const auto& value : values) {
    records.push_back({value});
    if (value.is_row_of_rank) records.push_back({value, /*is_of_ranks=*/true});
  }
  Tensor mean;
  const auto write = [&](FunctionRef<void()> await_turn) {
    if (!is_first_in_directory()) return;
    checkpoint::save(
        *files, {.path = path, .append_info = append_info, .encryption = encryption}, records.size(),
        [&](size_t i) {
          const auto& [value, is_of_ranks] = records[i];
          const auto& name = value.held.name;
          if (is_of_ranks) return gather.current().entry(name_of_rows(name));
          await_turn();
          if (!value.is_row_of_rank) return gather.current().entry(name);
          const Type& rows = value.held.type;
          const Shape row(std::span(rows.shape.begin() + 1, rows.shape.end()));
          mean = regroup(gather.current().copy(), {rows.dtype, row});
          return checkpoint::Entry(name, mean.view());
        },
        info);
  };
  checkpoint::share_outcome(barrier, "cannot save", [&] {
    barrier.run_in_turns(
        std::ssize(values), [&] { gather.next(); }, write);
    return std::string();
  });
  return checkpoint::with_ckpt_suffix(path);
}

std::string CheckpointJob::save_own_slices() {
  RankBarrier barrier(*group);
  const auto regions = regions_to_write();
  std::vector<checkpoint::Slice> slices;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& slice = slices.emplace_back();
    slice.name = values[i].held.name;
    slice.type = values[i].held.type;
    slice.region = regions[i];
    slice.without_first_dim = values[i].is_row_of_rank && together.size() == 1;
    if (!regions[i]) continue;
    const Elements part = part_of(elements_of(values[i]), checkpoint::relative(*regions[i], *values[i].region));
    slice.value = part.view;
    slice.streamed = part.streamed;
  }
  return checkpoint::save_slices(
      *files, barrier, {.path = path, .append_info = append_info, .together = together, .encryption = encryption},
      slices, info);
}

}  // namespace tessera::train
