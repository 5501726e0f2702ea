package charts

// Files of the chart that are no templates: what Prometheus and Grafana evaluate has Helm's braces.
const (
	alertsFile    = "files/prometheus-rules.yaml"
	dashboardFile = "files/grafana-dashboard.json"
)

// monitoring are objects for prometheus-operator and Grafana. A release whose values are of an
// earlier chart (helm upgrade --reuse-values) has neither "prometheus" nor "grafana". The alerts
// want the job's name, and a label of a target is it before any default.
const monitoring = `{{- with .Values.prometheus }}
{{- if .rules }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: hostpath-provisioner
  namespace: {{ $.Release.Namespace }}
` + monitoringLabels + `spec:
{{ $.Files.Get "` + alertsFile + `" | indent 2 }}
{{- end }}
{{- if .scrapeConfig }}
---
apiVersion: monitoring.coreos.com/v1alpha1
kind: ScrapeConfig
metadata:
  name: hostpath-provisioner
  namespace: {{ $.Release.Namespace }}
` + monitoringLabels + `spec:
{{- range $field, $value := .scrape }}
  {{ $field }}: {{ $value | toJson }}
{{- end }}
  staticConfigs:
    - targets: {{ .targets | toJson }}
      labels: {job: hostpath-provisioner}
{{- end }}
{{- end }}
{{- with .Values.grafana }}
{{- if .dashboard }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: hostpath-provisioner-dashboard
  namespace: {{ $.Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: hostpath-provisioner
    grafana_dashboard: "1"
data:
  hostpath-provisioner.json: |
{{ $.Files.Get "` + dashboardFile + `" | indent 4 }}
{{- end }}
{{- end }}
`

const monitoringLabels = `  labels:
    app.kubernetes.io/part-of: hostpath-provisioner
{{- range $name, $value := .labels }}
    {{ $name }}: {{ $value | toJson }}
{{- end }}
`

const monitoringValues = `
# Of prometheus-operator, whose kinds the cluster has to know: the packages' alerts as a
# PrometheusRule, and a ScrapeConfig.
prometheus:
  rules: false
  scrapeConfig: false
  # HOST:PORT of each daemon, as Prometheus reaches it: "Metrics for another host" in
  # docs/security.md.
  targets: []
  # More of the ScrapeConfig's spec, such as: {scheme: HTTPS, basicAuth: {...}, tlsConfig: {...}}
  scrape: {}
  # By these your Prometheus selects both, such as: {release: kube-prometheus-stack}
  labels: {}

# A ConfigMap with the dashboard, which Grafana's sidecar finds by its label grafana_dashboard.
grafana:
  dashboard: false
`

// monitoringSchema refuses a ScrapeConfig without targets, of which nothing would be scraped.
const monitoringSchema = `    "prometheus": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "rules": {"type": "boolean"},
        "scrapeConfig": {"type": "boolean"},
        "targets": {"type": "array", "items": {"type": "string", "pattern": "^[^/\\s]+:[0-9]+$"}},
        "scrape": {"type": "object", "properties": {"staticConfigs": false}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}
      },
      "if": {"properties": {"scrapeConfig": {"const": true}}},
      "then": {"properties": {"targets": {"minItems": 1}}}
    },
    "grafana": {
      "type": "object",
      "additionalProperties": false,
      "properties": {"dashboard": {"type": "boolean"}}
    }
`

const monitoringNotes = `{{- with .Values.prometheus }}
{{- if and .rules (not .scrapeConfig) }}

The alert HostpathProvisionerAbsent fires until Prometheus scrapes a job named hostpath-provisioner.
{{- end }}
{{- end }}
`
