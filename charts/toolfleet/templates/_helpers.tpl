{{/* Short enough for a StatefulSet's pods, which bear it in a label with a digest. */}}
{{- define "toolfleet.name" -}}
{{- printf "%s%s" (.Release.Name | trunc 30 | trimSuffix "-") (ternary "" "-toolfleet" (contains "toolfleet" .Release.Name)) -}}
{{- end -}}

{{/* Labels of everything; those that select come from the next. Takes a list: the
     top and the component. */}}
{{- define "toolfleet.labels" -}}
{{- $top := first . -}}
{{ include "toolfleet.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version }}
{{- end -}}

{{- define "toolfleet.selector" -}}
{{- $top := first . -}}
app.kubernetes.io/name: toolfleet
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{/* Takes a list: the top and the image's name. */}}
{{- define "toolfleet.image" -}}
{{- $image := (first .).Values.image -}}
{{- $digest := get $image.digests (last .) -}}
{{- if $digest -}}
{{ $image.registry }}/{{ last . }}@{{ $digest }}
{{- else -}}
{{ $image.registry }}/{{ last . }}:{{ $image.tag | default (first .).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "toolfleet.authSecret" -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingSecret }}
{{- else if and .Values.auth.tokens .Values.auth.signingKey -}}
{{ include "toolfleet.name" . }}-auth
{{- else -}}
{{- fail "name a Secret with the callers' tokens in auth.existingSecret, or give auth.tokens and auth.signingKey for a trial" -}}
{{- end -}}
{{- end -}}

{{/* The ConfigMap with tool files, or nothing. */}}
{{- define "toolfleet.toolsConfigMap" -}}
{{- if .Values.tools.existingConfigMap -}}
{{ .Values.tools.existingConfigMap }}
{{- else if .Values.tools.files -}}
{{ include "toolfleet.name" . }}-tools
{{- end -}}
{{- end -}}

{{- define "toolfleet.natsURL" -}}
{{- if .Values.nats.inChart.enabled -}}
nats://{{ include "toolfleet.name" . }}-nats:4222
{{- else -}}
{{ required "name the NATS servers in nats.url, or let the chart run one with nats.inChart.enabled" .Values.nats.url }}
{{- end -}}
{{- end -}}

{{/* How a role reaches NATS. Take a list: the top and the Secret with its nkey. */}}
{{- define "toolfleet.natsArgs" -}}
{{- $top := first . -}}
- --nats={{ include "toolfleet.natsURL" $top }}
{{- if last . }}
- --nats-nkey=/etc/toolfleet/nats/nkey
{{- end }}
{{- if $top.Values.nats.caSecret }}
- --nats-ca=/etc/toolfleet/nats-ca/ca.crt
{{- end }}
{{- end -}}

{{- define "toolfleet.natsMounts" -}}
{{- $top := first . -}}
{{- if last . }}
- {name: nats, mountPath: /etc/toolfleet/nats, readOnly: true}
{{- end }}
{{- if $top.Values.nats.caSecret }}
- {name: nats-ca, mountPath: /etc/toolfleet/nats-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "toolfleet.natsVolumes" -}}
{{- $top := first . -}}
{{- with last . }}
- name: nats
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with $top.Values.nats.caSecret }}
- name: nats-ca
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/* Where pods may run, from a part's values. */}}
{{- define "toolfleet.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* What the restricted Pod Security Standard asks for. */}}
{{- define "toolfleet.restricted" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "toolfleet.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
