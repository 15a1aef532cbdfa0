/* torch_file.h - what torch.save wrote of a state_dict: a zip archive of a pickle and the tensors' bytes, or the older
 * form, pickles one after the other and then the bytes. See pickle.h for what is read of a pickle.
 */
#ifndef TOOLS_TORCH_FILE_H
#define TOOLS_TORCH_FILE_H

#include "safetensors.h"

int is_torch_file(const source *src); /* by its first bytes */
/* The tensors of a state_dict, or of one that lies in a dict under "state_dict", "model" or "module", as an array of
 * the arena; `file` is what they get as their file. */
int torch_read(const source *src, int file, arena *a, st_tensor **out, size_t *n, int *big_endian, tfm_error *err);

#endif
