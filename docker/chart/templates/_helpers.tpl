{{- define "watershed.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "watershed.worker" -}}
{{- $name := printf "%s-%s" (include "watershed.name" .root) .alias }}
{{- if gt (len $name) 63 }}{{ fail (printf "%s is longer than the 63 characters of a name in Kubernetes: choose a shorter name for the release" $name) }}{{ end }}
{{- $name }}
{{- end }}

{{- define "watershed.labels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "watershed.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .alias }}
watershed/worker: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "watershed.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "watershed.configMap" -}}
{{- .Values.topology.existingConfigMap | default (include "watershed.name" .) }}
{{- end }}

{{- /* Where the topology is in a pod. */ -}}
{{- define "watershed.path" -}}
{{- list "/topologies" .Values.topology.file | compact | join "/" }}
{{- end }}

{{- define "watershed.namespaces" -}}
{{- $found := list }}
{{- range .Values.applications }}{{ $found = append $found .namespace }}{{ end }}
{{- $found | uniq | sortAlpha | join "," }}
{{- end }}

{{- /* A pod's annotations: it is replaced when what it was started with has changed. */ -}}
{{- define "watershed.podAnnotations" -}}
{{- $own := dict "watershed/topology" (.Values.topology.text | sha256sum | trunc 16) }}
{{- merge $own .Values.podAnnotations | toYaml }}
{{- end }}

{{- define "watershed.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "watershed.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What all containers have: variables, secrets by reference, and the folders. */ -}}
{{- define "watershed.container" -}}
image: {{ include "watershed.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "watershed.containerSecurity" . | nindent 2 }}
env:
  - {name: HOME, value: /tmp}
  - {name: PYTHONDONTWRITEBYTECODE, value: "1"}
  {{- range $name, $value := .Values.settings }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
  {{- range .Values.secrets.env }}
  - name: {{ .name }}
    valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key | quote }}}}
  {{- end }}
volumeMounts:
  - {name: topologies, mountPath: /topologies, readOnly: true}
  - {name: scratch, mountPath: /tmp}
  {{- range .Values.secrets.files }}
  - {name: secret-{{ .folder }}, mountPath: /run/secrets/watershed/{{ .folder }}, readOnly: true}
  {{- end }}
{{- end }}

{{- define "watershed.volumes" -}}
- name: topologies
  configMap: {name: {{ include "watershed.configMap" . }}}
- name: scratch
  emptyDir: {}
{{- range .Values.secrets.files }}
- name: secret-{{ .folder }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "watershed.placing" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* Workers read what was written since they began in steps of seconds; Python and the first questions take longer. */ -}}
{{- define "watershed.probes" -}}
startupProbe:
  httpGet: {path: /health/live, port: metrics}
  periodSeconds: 3
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /health/live, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /health/ready, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* One destination of a NetworkPolicy, as a rule of egress. */ -}}
{{- define "watershed.egress" -}}
- to:
    {{- if .cidr }}
    - ipBlock: {cidr: {{ .cidr | quote }}}
    {{- else }}
    - {{ include "watershed.peer" . | nindent 6 | trim }}
    {{- end }}
  ports:
    {{- range $port := .ports }}
    {{- range $.protocols | default (list "TCP") }}
    - {port: {{ $port }}, protocol: {{ . }}}
    {{- end }}
    {{- end }}
{{- end }}

{{- /* Pods of a namespace: never all namespaces. */ -}}
{{- define "watershed.peer" -}}
namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .namespace }}}}
{{- with .labels }}
podSelector: {matchLabels: {{ toJson . }}}
{{- end }}
{{- end }}

{{- /* What a schema cannot say. */ -}}
{{- define "watershed.check" -}}
{{- with .Values.topology }}
{{- if and .text .existingConfigMap }}{{ fail "topology.text and topology.existingConfigMap exclude each other: leave one out" }}{{ end }}
{{- if not (or .text .existingConfigMap) }}{{ fail "topology.text is empty: add --set-file topology.text=FILE, or name a ConfigMap in topology.existingConfigMap" }}{{ end }}
{{- if and .text (not .file) }}{{ fail "topology.file is empty: with topology.text it is the name of a file, such as topology.yaml" }}{{ end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.brokers) }}{{ fail "networkPolicy.brokers is empty, so no pod could reach a broker: name the brokers, such as {cidr: 10.1.0.0/16, ports: [9093]}, or set networkPolicy.enabled=false" }}{{ end }}
{{- if and .Values.applications (not .Values.migrationAccounts) (not .Values.console.enabled) }}{{ fail "applications gives rights to nobody: enable the console, or name service accounts in migrationAccounts" }}{{ end }}
{{- if and .Values.monitoring.prometheusRule.enabled (not .Values.monitoring.prometheusRule.text) }}{{ fail "monitoring.prometheusRule.text is empty: write it with `topology alerts FILE --format operator`, and add --set-file monitoring.prometheusRule.text=rules.yaml" }}{{ end }}
{{- range $alias, $own := .Values.workers }}
{{- if has $alias (list "console" "exporter") }}{{ fail (printf "workers.%s: the chart has an object of this name already: choose another key, and say the cluster in `target`" $alias) }}{{ end }}
{{- $worker := mergeOverwrite (deepCopy $.Values.workerDefaults) (deepCopy ($own | default dict)) }}
{{- if $.Values.topology.text }}
{{- $clusters := (fromYaml $.Values.topology.text).clusters | default dict }}
{{- if not (hasKey $clusters ($worker.target | default $alias)) }}{{ fail (printf "workers.%s: the topology has no cluster of this name (say `target`, if the name is another); it has %s" $alias (keys $clusters | sortAlpha | join ", ")) }}{{ end }}
{{- end }}
{{- with $worker.autoscaling }}
{{- if gt (int .min) (int .max) }}{{ fail (printf "workers.%s: autoscaling.min %v is more than autoscaling.max %v" $alias .min .max) }}{{ end }}
{{- if and (eq .kind "keda") (not .prometheus) }}{{ fail (printf "workers.%s: autoscaling by keda needs autoscaling.prometheus, the address of your Prometheus" $alias) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
