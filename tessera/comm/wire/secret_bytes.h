// SecretBytes: bytes that nobody finds where a process has crashed: a password, a key. They lie in pages of their own
// that the system leaves out of core dumps (MADV_DONTDUMP) and that are wiped before they are given back. Copies share
// them; they do not change once there is a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tessera::comm {

class SecretBytes {
 public:
  SecretBytes() = default;  // none
  // A copy. Throws IoError where the system has no memory.
  explicit SecretBytes(std::string_view bytes);
  // So many zeros, for who writes them at data() before anybody has a copy.
  static SecretBytes zeros(size_t size);

  char* data() { return pages_ == nullptr ? nullptr : pages_->bytes; }
  std::string_view view() const {
    return pages_ == nullptr ? std::string_view() : std::string_view(pages_->bytes, pages_->size);
  }
  // They end with a zero, which does not count; "" where there are none.
  const char* c_str() const { return pages_ == nullptr ? "" : pages_->bytes; }
  size_t size() const { return view().size(); }
  bool empty() const { return size() == 0; }

 private:
  struct Pages {
    explicit Pages(size_t size);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    char* bytes = nullptr;
    size_t size = 0;
    size_t mapped = 0;
  };

  std::shared_ptr<Pages> pages_;
};

}  // namespace tessera::comm
