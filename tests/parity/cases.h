// The cases that parity_cases writes, one function per suite.
#pragma once

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
  int64_t steps = 20;
  double learning_rate = 0.01;
  double loss_falls_by = 0.2;
  double limit = 0;
};
// ResNet-50, trained with momentum on batches of `images`, one after the other.
void write_training(CaseFolder& folder, const data::Dataset& images, const Training& training);

}  // namespace tessera::parity
