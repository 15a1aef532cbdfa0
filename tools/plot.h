/* plot.h - curves as an SVG picture: panels one below the other over one x axis.
 *
 * Plain SVG 1.1 that follows a viewer's dark theme, with a title and a description for screen readers. Axes start at 0.
 */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include "base.h"

enum { PLOT_SOLID, PLOT_DASHED };

typedef struct plot_curve {
    const char *label;
    const double *y;          /* [n_points]; a value below 0 is a gap */
    const double *low, *high; /* [n_points] each, a band around the curve; or NULL */
    int style;                /* PLOT_SOLID with a mark at each point, PLOT_DASHED for a bound */
} plot_curve;

typedef struct plot_panel {
    const char *y_label;
    const plot_curve *curves;
    int n_curves;
} plot_panel;

typedef struct plot {
    const char *title, *subtitle, *x_label;
    const double *x; /* [n_points], ascending, none below 0 */
    int n_points;
    const plot_panel *panels;
    int n_panels;
} plot;

/* The picture, from the arena. NULL: no memory. */
char *plot_svg(const plot *p, arena *a);

#endif
