/* base.h - what every program shares, in one line to include.
 *
 * text.h      messages, UTF-8, decimal numbers     cli.h       the command line
 * arena.h     memory, names, bytes                 terminal.h  progress, sizes for people
 * files.h     files, directories, memory as files  os.h        what differs between operating systems
 */
#ifndef TOOLS_BASE_H
#define TOOLS_BASE_H

#include "arena.h"
#include "cli.h"
#include "files.h"
#include "os.h"
#include "terminal.h"
#include "text.h"

#endif
