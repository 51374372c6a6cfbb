// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One function that the runtime compiles, for three seconds.
function plantedHot(n) {
  return n < 2 ? n : plantedHot(n - 1) + plantedHot(n - 2);
}

const end = Date.now() + 3000;
let sum = 0;
while (Date.now() < end) sum += plantedHot(25);
console.log(sum > 0);
