#include "tessera/train/translation/translate.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

// Rows [first, first + count) of the sources, each `times` times; where there are no more rows the last one stands.
Tensor repeated_rows(const Tensor& sources, int64_t first, int64_t count, int64_t times) {
  const int64_t length = sources.shape()[1];
  Tensor rows(DType::kI32, {count * times, length});
  const auto from = sources.values<int32_t>();
  const auto to = rows.values<int32_t>();
  for (int64_t i = 0; i < count * times; ++i) {
    const int64_t row = std::min(first + i / times, sources.shape()[0] - 1);
    std::copy_n(from.begin() + row * length, length, to.begin() + i * length);
  }
  return rows;
}

// Of logits of all tokens those of token `place` in each row.
Tensor scores_at(const Tensor& logits, int64_t rows, int64_t length, int64_t place) {
  const int64_t vocabulary = logits.ndim() > 0 ? logits.shape().back() : 0;
  if (vocabulary < 1 || logits.shape().num_elements() != rows * length * vocabulary || logits.ndim() < 2 ||
      logits.ndim() > 3) {
    throw InvalidArgument("translate: the network must give logits [{},vocabulary], gives {}", rows * length,
                          logits.type());
  }
  const TensorView all = logits.view();
  auto* const first =
      static_cast<std::byte*>(all.data) + place * vocabulary * static_cast<int64_t>(size_bytes(all.dtype));
  Tensor scores(DType::kF32, {rows, vocabulary});
  copy_elements(TensorView(first, all.dtype, {rows, vocabulary}, {length * vocabulary, 1}), scores.view());
  return scores;
}

}  // namespace

std::vector<Decoded> translate(Model& model, const Tensor& sources, const TranslateOptions& options) {
  if (sources.dtype() != DType::kI32 || sources.ndim() != 2) {
    throw InvalidArgument("translate: sources must be i32[n,s], are {}", sources.type());
  }
  if (options.batch_size < 1)
    throw InvalidArgument("translate: batch_size must be at least 1, got {}", options.batch_size);
  if (sources.shape()[0] > 0) check_beam_search(std::min(options.batch_size, sources.shape()[0]), options.search);
  const int64_t total = sources.shape()[0];
  const int64_t batch = std::min(options.batch_size, total);
  const int64_t length = options.search.max_length;
  std::vector<Decoded> translations;
  for (int64_t first = 0; first < total; first += batch) {
    const Tensor rows = repeated_rows(sources, first, batch, options.search.beam_size);
    auto found = beam_search(
        batch,
        [&](const Tensor& prefixes, int64_t chosen) {
          return scores_at(model.predict({rows, prefixes}), prefixes.shape()[0], length, chosen - 1);
        },
        options.search);
    found.resize(static_cast<size_t>(std::min(batch, total - first)));
    std::move(found.begin(), found.end(), std::back_inserter(translations));
  }
  return translations;
}

}  // namespace tessera::train
