// The cases that parity_cases writes, one function per suite.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tessera/data/dataset.h"
#include "tests/parity/case_folder.h"

namespace tessera::parity {

void write_losses(CaseFolder& folder);
void write_optimizers(CaseFolder& folder);
// `images` are CIFAR-10's.
void write_transforms(CaseFolder& folder, const data::Dataset& images);

struct Training {
  std::string name;
  DType dtype = DType::kF32;
  bool reference_kernels = false;
  int64_t image_size = 32;
  int64_t batch_size = 4;
  int64_t num_batches = 2;  // in turn: in so few steps the loss of known images falls, that of ever new ones need not
  int64_t steps = 20;       // a multiple of num_batches
  double learning_rate = 0.01;
  // Rates of the parameters whose names begin so; learning_rate is that of the others.
  std::map<std::string, double> learning_rates = {};
  double loss_falls_by = 0.2;
  double limit = 0;
  std::optional<double> gradient_limit = std::nullopt;  // of the norm, where `limit` for each element is too much
};
// ResNet-50, trained with momentum on the first images.
void write_training(CaseFolder& folder, const data::Dataset& images, const Training& training);

}  // namespace tessera::parity
