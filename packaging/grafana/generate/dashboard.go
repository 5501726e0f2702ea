package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	tables "github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const page = "https://github.com/hostpath-provisioner/hostpath-provisioner/blob/main/docs/"

// generate is the dashboard in the form that every Grafana imports. It is an error if an expression
// has a metric that there is not, or a metric of ours has no panel.
func generate(rows []row, c catalog) ([]byte, error) {
	b := dashboard.NewDashboardBuilder("hostpath-provisioner").Uid("hostpath-provisioner").
		Tags([]string{"hostpath-provisioner", "kubernetes", "storage"}).
		Refresh("1m").Time("now-6h", "now").Timezone("browser").
		Link(dashboard.NewDashboardLinkBuilder("What each metric means").
			Type(dashboard.DashboardLinkTypeLink).Url(page + "operation.md#metrics-and-health")).
		Link(dashboard.NewDashboardLinkBuilder("What each reason means").
			Type(dashboard.DashboardLinkTypeLink).Url(page + "troubleshooting.md")).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").
			Type("prometheus")).
		WithVariable(choice("node", "Node", "label_values("+ours+"build_info, instance)")).
		WithVariable(choice("pool", "Pool",
			"label_values("+ours+`pool_open{instance=~"$node"}, pool)`))
	id, shown, wrong := uint32(0), []string(nil), []error(nil)
	for _, r := range rows {
		id++
		b.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			id++
			built, names, err := p.build(id, c)
			b.WithPanel(built)
			shown, wrong = append(shown, names...), append(wrong, err)
		}
	}
	whole, err := b.Build()
	if err := errors.Join(append(wrong, c.missing(shown), err)...); err != nil {
		return nil, err
	}
	for i := range whole.Links {
		whole.Links[i].Placement = nil // beside the variables, where Grafana's other one is a menu
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	return append(text, '\n'), err
}

// choice is a variable of which all or several values can be chosen.
func choice(name, label, asked string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).
		Query(dashboard.StringOrMap{String: &asked}).Definition(asked).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

// whole is a panel that is built.
type whole struct{ dashboard.Panel }

// Build is part of cog.Builder.
func (w whole) Build() (dashboard.Panel, error) { return w.Panel, nil }

var bare = regexp.MustCompile(ours + `\w+`)

// build returns the panel and the metrics that it shows.
func (p panel) build(id uint32, c catalog) (w whole, shown []string, err error) {
	if w.Panel, err = p.drawn().Build(); err != nil {
		return w, nil, err
	}
	var about []string
	for i, q := range p.queries {
		expression, names, err := c.fill(q.expression)
		if err != nil {
			return w, nil, fmt.Errorf("panel %q: %w", p.title, err)
		}
		names = append(names, bare.FindAllString(q.expression, -1)...)
		for _, name := range names {
			if help := c[name].help; help != "" && !slices.Contains(about, help) {
				about = append(about, help)
			}
		}
		asked := prometheus.NewDataqueryBuilder().Expr(expression).LegendFormat(q.legend).
			RefId(string(rune('A' + i))).Datasource(source).Range()
		if p.kind == table {
			asked = asked.Instant().Format(prometheus.PromQueryFormatTable)
		}
		built, err := asked.Build()
		if err != nil {
			return w, nil, err
		}
		w.Targets, shown = append(w.Targets, built), append(shown, names...)
	}
	w.Id, w.Title, w.Datasource = &id, &p.title, &source
	if len(about) > 0 {
		w.Description = cog.ToPtr(strings.Join(about, "\n\n"))
	}
	w.GridPos = &dashboard.GridPos{W: p.wide, H: p.high()}
	if p.unit != "" {
		if w.FieldConfig == nil {
			w.FieldConfig = dashboard.NewFieldConfigSource()
		}
		w.FieldConfig.Defaults.Unit = &p.unit
	}
	return w, shown, nil
}

func (p panel) high() uint32 {
	if p.kind == count || p.kind == number {
		return 4
	}
	return 8
}

// drawn is the panel as its kind draws it.
func (p panel) drawn() cog.Builder[dashboard.Panel] {
	switch p.kind {
	case count:
		return one().ColorMode(common.BigValueColorModeBackground).Thresholds(steps("green", "red"))
	case number:
		return one().ColorMode(common.BigValueColorModeNone)
	case states:
		return statetimeline.NewPanelBuilder().ShowValue(common.VisibilityModeNever).
			Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
				Type: dashboard.MappingTypeValueToText,
				Options: map[string]dashboard.ValueMappingResult{
					"0": mapped(0, "no", "red"), "1": mapped(1, "yes", "green")},
			}}})
	case table:
		return p.tabled()
	}
	drawn := timeseries.NewPanelBuilder().Min(0).ShowPoints(common.VisibilityModeNever).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending).HideZeros(true)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
	if p.kind == bars {
		drawn = drawn.DrawStyle(common.GraphDrawStyleBars).FillOpacity(80).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	return drawn
}

func mapped(place int32, text, color string) dashboard.ValueMappingResult {
	return dashboard.ValueMappingResult{Text: &text, Color: &color, Index: &place}
}

// one is the last number.
func one() *stat.PanelBuilder {
	return stat.NewPanelBuilder().Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

func steps(below, above string) *dashboard.ThresholdsConfigBuilder {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
		Steps([]dashboard.Threshold{{Color: below}, {Value: cog.ToPtr(1.0), Color: above}})
}

// tabled has one line for each set of labels, and a column for each query.
func (p panel) tabled() cog.Builder[dashboard.Panel] {
	t := tables.NewPanelBuilder().
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize",
			Options: map[string]any{"excludeByName": map[string]bool{"Time": true}}})
	for i, q := range p.queries {
		value := "Value #" + string(rune('A'+i))
		if len(p.queries) == 1 {
			value = "Value"
		}
		t = t.OverrideByName(value, []dashboard.DynamicConfigValue{
			{Id: "displayName", Value: q.legend}})
	}
	return t
}
