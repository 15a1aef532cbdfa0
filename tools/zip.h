/* zip.h - the directory of a zip archive whose members are stored as they are, ZIP64 included. Nothing is unpacked:
 * a compressed or encrypted member is an error that names it.
 */
#ifndef TOOLS_ZIP_H
#define TOOLS_ZIP_H

#include "base.h"

typedef struct zip_entry {
    const char *name;
    uint64_t offset, bytes; /* of the member's data in the archive */
    uint64_t header;        /* where its local header stands */
} zip_entry;

typedef struct zip {
    const char *archive;    /* for messages */
    zip_entry *entries;
    size_t n;
    name_index index;
} zip;

/* Every number is checked against the archive, members against each other. The data's checksums are not. */
int zip_open(zip *z, const source *src, arena *a, tfm_error *err);
const zip_entry *zip_find(const zip *z, const char *name); /* NULL: absent */

#endif
