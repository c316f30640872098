// Writes what compare.py compares with PyTorch:  parity_cases SUITE FOLDER
// The images are CIFAR-10's from $TESSERA_SHARED/data/cifar-10 or shared/ beside the source, drawn ones where it is
// absent.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "tessera/base/error.h"
#include "tessera/data/sets/cifar10.h"
#include "tessera/data/sets/synthetic_cifar10.h"
#include "tests/parity/cases.h"

namespace {

using namespace tessera;  // NOLINT: a program, not a header

data::Dataset images(MemoryFileSystem& drawn) {
  const char* shared = std::getenv("TESSERA_SHARED");
  const std::string directory =
      join_path(shared != nullptr ? shared : std::string(TESSERA_SOURCE_DIR) + "/../shared", "data/cifar-10");
  const data::Cifar10Options options{.usage = "train", .shuffle = false};
  if (FileSystem::local().exists(join_path(directory, "data_batch_1.bin"))) return data::cifar10(directory, options);
  std::printf("CIFAR-10 is absent (%s): drawn images instead\n", directory.c_str());
  data::write_synthetic_cifar10(drawn, "drawn", {.train_records = 100, .test_records = 1, .seed = 3});
  return data::cifar10(drawn, "drawn", options);
}

}  // namespace

int main(int argc, char** argv) {
  MemoryFileSystem drawn;
  const auto training = [&](parity::CaseFolder& folder, const parity::Training& described) {
    parity::write_training(folder, images(drawn), described);
  };
  const std::map<std::string, std::function<void(parity::CaseFolder&)>> suites = {
      {"losses", parity::write_losses},
      {"optimizers", parity::write_optimizers},
      {"transforms", [&](auto& folder) { parity::write_transforms(folder, images(drawn)); }},
      {"resnet50_f64",
       [&](auto& folder) {
         training(folder, {.name = "ResNet-50 f64, reference kernels, 64x64, batch 4",
                           .dtype = DType::kF64,
                           .reference_kernels = true,
                           .image_size = 64,
                           .learning_rate = 1e-7,
                           .limit = 1e-9});
       }},
      {"resnet50_f32",
       [&](auto& folder) {
         // Smaller where gradients are larger, see README.md.
         training(folder,
                  {.name = "ResNet-50 f32, 224x224, batch 8",
                   .image_size = 224,
                   .batch_size = 8,
                   .learning_rate = 2e-5,
                   .learning_rates =
                       {{"head.", 2e-9}, {"layer1.", 2e-7}, {"layer2.", 2e-6}, {"layer3.", 1.2e-5}, {"layer4.", 4e-5}},
                   .limit = 1e-3,
                   .gradient_limit = 0.1});
       }},
  };
  if (argc != 3 || !suites.contains(argv[1])) {
    std::string names;
    for (const auto& [name, write] : suites) names += " " + name;
    std::fprintf(stderr, "usage: parity_cases SUITE FOLDER   suites:%s\n", names.c_str());
    return 2;
  }
  try {
    parity::CaseFolder folder(FileSystem::local(), argv[2]);
    suites.at(argv[1])(folder);
    folder.close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_cases: %s\n", error.what());
    return 1;
  }
  return 0;
}
