// Cells on rows [n,features] that the layers of a Transformer are made of. Internal to this folder.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

// Which side of its weight a projection splits between the ranks of a model: its results, or what it sums over.
enum class SplitSide { kOut, kIn };

// x [n,in] -> x W + b [n,out]. Parameters weight, [out,in] for SplitSide::kOut where `transposed`, else [in,out]; bias
// [out].
class Projection : public Cell {
 public:
  Projection(int64_t in_features, int64_t out_features, bool transposed, SplitSide side,
             const TransformerParallel& parallel, const Init& weight_init = "normal");
  using Cell::construct;
  Value construct(Value x) override;

 private:
  int64_t in_features_;
  bool transposed_;
  SplitSide side_;
  TransformerParallel parallel_;
  Parameter& weight_;
  Parameter& bias_;
};

// Layer normalisation of rows [n,features]. Parameters gamma and beta [features], which replicas keep whole.
class RowNorm : public Cell {
 public:
  RowNorm(int64_t features, const TransformerParallel& parallel);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  TransformerParallel parallel_;
  Parameter& gamma_;
  Parameter& beta_;
};

// Dropout of rows [n,features] at a rate in [0,1).
class RowDropout : public Cell {
 public:
  RowDropout(double rate, const TransformerParallel& parallel);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  TransformerParallel parallel_;
  Dropout& dropout_;
};

// [n,t,features] as rows [n*t,features], and back.
Value rows_of(Value x, const TransformerParallel& parallel);
Value tokens_of(Value rows, const Shape& like, const TransformerParallel& parallel);
// The sum of two matrices of rows.
Value add_rows(Value x, Value y, const TransformerParallel& parallel);

// Throws InvalidArgument unless the rate is in [0,1).
void check_rate(const char* who, const char* what, double rate);
// Throws InvalidArgument naming the cell unless x is [n,t,features].
void check_tokens(const Cell& cell, const char* what, Value x, int64_t features);

}  // namespace tessera::nn
