// SimHeap: a priority queue in one flat array; the smallest element comes first.
//
// Four children a parent instead of two: half the levels, and the children of a parent share one or
// two cache lines, which is what a pop from a large heap waits for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace poseidon {

// T is small and has operator<. Elements that are equal come out in any order.
template <typename T>
class SimHeap {
 public:
  bool empty() const { return elements_.empty(); }
  size_t size() const { return elements_.size(); }
  const T& top() const { return elements_.front(); }

  void Push(const T& element) {
    elements_.push_back(element);
    size_t hole = elements_.size() - 1;
    while (hole > 0) {
      const size_t parent = (hole - 1) / kChildren;
      if (!(element < elements_[parent])) break;
      elements_[hole] = elements_[parent];
      hole = parent;
    }
    elements_[hole] = element;
  }

  T Pop() {
    const T result = elements_.front();
    const T last = elements_.back();
    elements_.pop_back();
    if (!elements_.empty()) SiftDown(0, last);
    return result;
  }

  // Linear in size().
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    std::erase_if(elements_, predicate);
    for (size_t i = elements_.size(); i-- > 0;) SiftDown(i, T(elements_[i]));
  }

 private:
  static constexpr size_t kChildren = 4;

  // Puts `element` at `hole` or below it.
  void SiftDown(size_t hole, const T& element) {
    const size_t size = elements_.size();
    for (;;) {
      const size_t first = hole * kChildren + 1;
      if (first >= size) break;
      const size_t end = std::min(first + kChildren, size);
      size_t least = first;
      for (size_t child = first + 1; child < end; ++child) {
        if (elements_[child] < elements_[least]) least = child;
      }
      if (!(elements_[least] < element)) break;
      elements_[hole] = elements_[least];
      hole = least;
    }
    elements_[hole] = element;
  }

  std::vector<T> elements_;
};

}  // namespace poseidon
