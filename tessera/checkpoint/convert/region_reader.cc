#include "tessera/checkpoint/convert/region_reader.h"

#include <algorithm>

#include "tessera/tensor/strided_copy.h"

namespace tessera::checkpoint {
namespace {

// So that a job of a thousand ranks does not run out of file descriptors.
constexpr size_t kMaxOpenFiles = 64;
// Runs shorter than a page are not worth a system call each: the bytes between them are read along.
constexpr int64_t kMinRunBytes = 4096;

// Where a region lies in a row-major block that contains it: element offset of its first element and strides.
struct Place {
  int64_t offset = 0;
  Strides strides;
};

Place place_in(const Region& block, const Region& region) {
  Place place{0, dense_strides(block.shape)};
  for (int dim = 0; dim < region.ndim(); ++dim)
    place.offset += (region.offset[dim] - block.offset[dim]) * place.strides[dim];
  return place;
}

// How many elements of a region follow each other in a block of these strides.
int64_t run_elements(const Shape& shape, const Strides& strides) {
  int64_t run = 1;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    if (shape[dim] == 1) continue;
    if (strides[dim] != run) break;
    run *= shape[dim];
  }
  return run;
}

// From the first to the last element of a region, both included.
int64_t extent_elements(const Shape& shape, const Strides& strides) {
  int64_t extent = 1;
  for (int dim = 0; dim < shape.ndim(); ++dim) extent += (shape[dim] - 1) * strides[dim];
  return extent;
}

}  // namespace

void for_each_piece(const Region& region, int64_t max_elements, FunctionRef<void(const Region&)> f) {
  if (region.is_empty()) return;
  // The outermost dim whose rows fit; those before it are taken one index at a time.
  int dim = 0;
  int64_t row_elements = region.shape.num_elements();
  for (; dim < region.ndim(); ++dim) {
    row_elements /= region.shape[dim];
    if (row_elements <= max_elements) break;
  }
  if (dim == region.ndim()) return f(region);
  const int64_t step = std::max<int64_t>(1, max_elements / row_elements);
  Region piece = region;
  for (int outer = 0; outer < dim; ++outer) piece.shape[outer] = 1;
  while (true) {
    for (int64_t row = 0; row < region.shape[dim]; row += step) {
      piece.offset[dim] = region.offset[dim] + row;
      piece.shape[dim] = std::min(step, region.shape[dim] - row);
      f(piece);
    }
    int outer = dim - 1;
    while (outer >= 0 && ++piece.offset[outer] == region.offset[outer] + region.shape[outer]) {
      piece.offset[outer] = region.offset[outer];
      --outer;
    }
    if (outer < 0) return;
  }
}

void copy_region(const RegionBytes& from, const RegionBytes& to, const Region& common, int64_t element_bytes) {
  const Place source = place_in(from.region, common);
  const Place target = place_in(to.region, common);
  StridedCopy(common.shape, source.strides, target.strides, static_cast<size_t>(element_bytes))
      .run(from.bytes.data() + source.offset * element_bytes, to.bytes.data() + target.offset * element_bytes);
}

std::span<std::byte> dense_part(const RegionBytes& from, const Region& region, int64_t element_bytes) {
  const Place place = place_in(from.region, region);
  const int64_t elements = region.shape.num_elements();
  if (run_elements(region.shape, place.strides) != elements) return {};
  return from.bytes.subspan(static_cast<size_t>(place.offset * element_bytes),
                            static_cast<size_t>(elements * element_bytes));
}

RegionReader::RegionReader(FileSystem& files, const SourceFiles& sources) : files_(files), sources_(sources) {}

const RangeReader& RegionReader::reader_of(int64_t rank) {
  auto it = readers_.find(rank);
  if (it == readers_.end()) {
    if (readers_.size() == kMaxOpenFiles) readers_.clear();
    it = readers_.emplace(rank, open_ranges(files_, sources_.at(rank).path())).first;
  }
  return *it->second;
}

void RegionReader::read_region(const SourcePart& part, int64_t element_bytes, const Region& wanted,
                               const RegionBytes& to) {
  const Place from = place_in(part.region, wanted);
  const int64_t elements = wanted.shape.num_elements();
  const int64_t extent = extent_elements(wanted.shape, from.strides);
  if (extent == elements) {
    if (const auto all = dense_part(to, wanted, element_bytes); !all.empty()) {
      return read_content(reader_of(part.rank), part.tensor->pieces, from.offset * element_bytes, all);
    }
  }
  const bool reads_little_more =
      extent <= 2 * elements || run_elements(wanted.shape, from.strides) * element_bytes < kMinRunBytes;
  if (extent * element_bytes <= kPieceBytes && reads_little_more) {
    scratch_.resize(kPieceBytes);  // where regions lie dense, it never takes memory
    read_content(reader_of(part.rank), part.tensor->pieces, from.offset * element_bytes,
                 std::span(scratch_).first(static_cast<size_t>(extent * element_bytes)));
    const Place target = place_in(to.region, wanted);
    return StridedCopy(wanted.shape, from.strides, target.strides, static_cast<size_t>(element_bytes))
        .run(scratch_.data(), to.bytes.data() + target.offset * element_bytes);
  }
  // Halves along the outermost dim come to what is read at once in the end: a single run, at the latest.
  int dim = 0;
  while (wanted.shape[dim] == 1) ++dim;
  Region half = wanted;
  half.shape[dim] = wanted.shape[dim] / 2;
  read_region(part, element_bytes, half, to);
  half.offset[dim] += half.shape[dim];
  half.shape[dim] = wanted.shape[dim] - half.shape[dim];
  read_region(part, element_bytes, half, to);
}

void RegionReader::read_piece(const OutputTensor& tensor, const Region& region, std::span<std::byte> to) {
  const auto element_bytes = static_cast<int64_t>(size_bytes(tensor.like->dtype));
  for (const auto& part : tensor.sources) {
    if (const auto common = intersection(part.region, region)) read_region(part, element_bytes, *common, {region, to});
  }
}

}  // namespace tessera::checkpoint
